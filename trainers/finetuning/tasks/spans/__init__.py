"""Answer questions by spans of a text: the files, windows, answers and scores of SQuAD 1.1 and 2.0."""
