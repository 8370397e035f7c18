"""How fast a training goes, in tokens."""

import time
from typing import Any

import keras


class TokensPerSecond(keras.callbacks.Callback):
    """Shows the tokens trained on a second beside the loss.

    It adds `"tokens_per_second"` to the logs: in the progress bar that of the
    epoch so far, compilation included, and in the history that of the epoch
    without its first step.

    Args:
        tokens: Number of tokens of a step, padding not included, or the data
            set that `fit` reads with `shuffle=False`, whose
            `num_tokens(index)` gives that of a batch: a
            `keras_bft.data.TokenDataset`.

    Raises:
        ValueError: If `tokens` is neither.

    Example:

    ```python
    dataset = keras_bft.data.TokenDataset(rows.token_ids, rows.answer_mask)
    lm.fit(
        dataset,
        shuffle=False,
        callbacks=[keras_bft.training.TokensPerSecond(dataset)],
    )
    ```
    """

    def __init__(self, tokens: Any) -> None:
        super().__init__()
        counted = hasattr(tokens, "num_tokens")
        if not counted and not (isinstance(tokens, int) and tokens > 0):
            raise ValueError(
                "`tokens` must be a positive number of tokens or a data set "
                f"with `num_tokens`. Received: tokens={tokens!r}"
            )
        self.tokens = tokens

    def on_epoch_begin(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Starts the clock."""
        self._start = self._after_first = self._last = time.perf_counter()
        self._first: int | None = None
        self._total = 0

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Shows the rate so far."""
        now = self._last = time.perf_counter()
        if isinstance(self.tokens, int):
            count = self.tokens
        else:
            count = self.tokens.num_tokens(batch)
        self._total += count
        if self._first is None:
            self._after_first, self._first = now, count
        if logs is not None:
            logs["tokens_per_second"] = self._total / (now - self._start)

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Reports the rate of the epoch."""
        seconds = self._last - self._after_first
        if logs is not None and seconds > 0:
            after_first = self._total - (self._first or 0)
            logs["tokens_per_second"] = after_first / seconds
