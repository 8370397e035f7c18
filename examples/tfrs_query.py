"""Asks a recommender that `tfrs_retrieval.py` saved. It needs TensorFlow alone.

    python examples/tfrs_query.py tfrs-output/server ITEM ITEM ...

The items are a user's history, oldest first, by the names they have in the
data. Prints one recommended item a line, best first, and its score.
"""

import argparse

import tensorflow as tf


def main(argv: list[str] | None = None) -> None:
    """Loads the recommender, asks it and prints the answer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server", help="folder of the saved recommender")
    parser.add_argument("items", nargs="+", help="the history, oldest first")
    arguments = parser.parse_args(argv)
    recommend = tf.saved_model.load(arguments.server).signatures[
        "serving_default"
    ]
    _, inputs = recommend.structured_input_signature
    length = inputs["history"].shape[1]
    newest = arguments.items[-length:]
    padded = newest + [""] * (length - len(newest))
    answer = recommend(history=tf.constant([padded]))
    for item, score in zip(
        answer["items"][0].numpy(), answer["scores"][0].numpy(), strict=True
    ):
        print(f"{item.decode()}\t{score:.4f}")


if __name__ == "__main__":
    main()
