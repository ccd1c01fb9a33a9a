"""Work of the standard library, in Python and in C."""

import difflib
import json
import re
from pathlib import Path

text = Path(difflib.__file__).read_text()
for _ in range(150):
    words = re.findall(r"[a-z]+|[0-9]+", text)
    counts = {word: words.count(word) for word in set(words[:400])}
    json.loads(json.dumps(counts))
    difflib.SequenceMatcher(None, words[:500], words[250:750]).ratio()
