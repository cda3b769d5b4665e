"""Answers for the agent framework's own glob matcher, so that ours can be compared with it.

Each line of standard input is a JSON object with a pattern and paths. The answer is a line too: for each path whether it
matches, or null when the pattern is refused.
"""

import json
import logging
import sys

from deepagents.backends.utils import compile_grep_include_glob

logging.disable(logging.CRITICAL)
for line in sys.stdin:
    case = json.loads(line)
    try:
        matcher = compile_grep_include_glob(case["pattern"])
        answer = [matcher(path) for path in case["paths"]]
    except ValueError:
        answer = None
    print(json.dumps(answer))
