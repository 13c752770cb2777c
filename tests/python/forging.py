"""Checkpoints whose manifest says what somebody wants it to say, with a checksum that fits."""

import pitstop
import xxhash


def rewrite(checkpoint, edit):
    """Replaces the text of a manifest, after its first line, by what `edit` makes of it."""
    path = checkpoint / "manifest.json"
    before = path.read_bytes()[48:].decode()
    after = edit(before)
    assert after != before, "the edit did nothing"
    rest = after.encode()
    assert len(rest) <= 65536, "a longer one has another checksum"
    path.write_bytes(b'{"checksum":"%s",\n' % xxhash.xxh3_128_hexdigest(rest).encode() + rest)


def forged(path, state, *replacements):
    """A checkpoint of `state` with texts in its manifest replaced."""
    pitstop.save(path, state)

    def edit(text):
        for old, new in replacements:
            assert old in text, f"{old} is not in {text}"
            text = text.replace(old, new)
        return text

    rewrite(path, edit)
    return path
