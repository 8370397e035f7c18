"""Training data: interactions of users with items, questions with answers."""

from keras_bft.data.distractors import mix_distractors as mix_distractors
from keras_bft.data.interactions import Interactions as Interactions
from keras_bft.data.label_noise import CorruptedLabels as CorruptedLabels
from keras_bft.data.label_noise import corrupt_labels as corrupt_labels
from keras_bft.data.leave_one_out import LeaveOneOut as LeaveOneOut
from keras_bft.data.leave_one_out import leave_one_out as leave_one_out
from keras_bft.data.masked_item_dataset import (
    MaskedItemDataset as MaskedItemDataset,
)
from keras_bft.data.padding import pad_sequences as pad_sequences
from keras_bft.data.prompts import EncodedQuestions as EncodedQuestions
from keras_bft.data.prompts import encode_questions as encode_questions
from keras_bft.data.prompts import format_prompt as format_prompt
from keras_bft.data.question_files import read_questions as read_questions
from keras_bft.data.questions import Passage as Passage
from keras_bft.data.questions import Question as Question
from keras_bft.data.readers import read_interactions as read_interactions
from keras_bft.data.sequence_dataset import SequenceDataset as SequenceDataset
from keras_bft.data.synthetic import (
    SyntheticInteractions as SyntheticInteractions,
)
from keras_bft.data.synthetic import (
    synthetic_interactions as synthetic_interactions,
)
from keras_bft.data.token_dataset import TokenDataset as TokenDataset
