"""What the tests of commands share."""

TEXT = "naïve café, 12 <|im_end|>"


def output(result):
    status, out, err = result
    assert (status, err) == (0, "")
    return out
