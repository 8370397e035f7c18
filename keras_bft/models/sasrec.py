"""SASRec, plain or as a Bayesian filter."""

import keras

from keras_bft.models.transformer_recommender import TransformerRecommender


@keras.saving.register_keras_serializable(package="keras_bft")
class SASRec(TransformerRecommender):
    """Self-attentive sequential recommender, plain or Bayesian.

    A causal Transformer over a user's items that predicts the next one. With
    `bayesian=True` its layers are `BFTLayer`s and every item has a learned
    prior precision; with `False` they are standard layers. All else is the
    same code, so that a comparison is of the filter alone; under the same
    `keras.utils.set_random_seed` both start from the same weights.

    Positions are counted from the first kept item. Padding may stand at the
    right (as `keras_bft.data` pads) or at the left.

    Args:
        num_items: Size of the catalogue. Items are 1 to `num_items`, 0 pads.
        max_length: Number of newest items read. Defaults to `50`.
        embedding_dim: Width D of the states. Defaults to `64`.
        num_layers: Number of layers. Defaults to `2`.
        num_heads: Number of attention heads. Defaults to `2`.
        feed_forward_dim: Width of the feed-forward network. Defaults to D.
        dropout: Dropout of embeddings, attention and layers. Defaults to
            `0.5`.
        bayesian: Whether the layers filter. Defaults to `True`.
        form: `"full"` (default) or `"light"`, see `BFTLayer`.
        prior: Prior precision per `"item"` (default), from a small network on
            the embeddings (`"mlp"`), or one for all items (`"constant"`);
            all are learned.
        precision: `"channel"` (default) or `"token"`, see `BFTLayer`.
        key_precision: `"shared"` (default) or `"per_head"`.
        carry_units: Whether precisions change units with the values. Defaults
            to `True`. Then the prior starts at minus the log of the variance
            of the embeddings and the process noise at that variance times
            `exp(-2)`; without it at 0 and -2.
        strength: Filter strength. Defaults to `1.0`.
        trainable_strength: Whether each layer learns its strength.
        scale_embeddings: Whether embeddings are multiplied by `sqrt(D)` on the
            way in, so that states start at a variance of one, the scale of
            what attention adds to them. Defaults to `True`.
        gated_attention: Whether the layers of a plain model gate their
            attention's output, see `GatedAttention`; for comparison with the
            filter's gain. Defaults to `False`.
        dropout_mode: `"renormalized"` or `"inverted"` (default): what a
            dropped attention weight means, see `AttentionDropout`. It applies
            to the plain model too.
        activation: Activation of the feed-forward network.
        normalize_first: Pre-norm (default) or post-norm layers.
        layer_options: Other arguments of `BFTLayer` by name, such as
            `{"prior_dof": 2.0}`.
        seed: Seed of dropout and of sampled negatives. Initial weights follow
            `keras.utils.set_random_seed`.
        **kwargs: `item_features`, what is known of the items besides their
            ids, and `item_embedding`, the layer of the ids, see
            `SequentialRecommender`; arguments of `keras.Model`.

    Call arguments:
        items: `(B, T)` int, `T <= max_length`.

    Returns:
        States `(B, T, D)`. `score()` and `recommend()` give item scores.

    Raises:
        ValueError: If an argument is outside its domain.

    Example:

    >>> model = keras_bft.models.SASRec(num_items=20, max_length=8)
    >>> model.compile("adam", loss=keras_bft.losses.FullSoftmax())
    >>> items = np.array([[3, 5, 7, 0], [2, 4, 6, 8]])
    >>> next_items = np.array([[5, 7, 9, 0], [4, 6, 8, 10]])
    >>> history = model.fit(items, next_items, verbose=0)
    >>> ids, scores = model.recommend([[3, 5, 7], [2]], k=4)
    >>> ids.shape
    (2, 4)
    """
