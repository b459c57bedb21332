"""Sets up syntax highlighting for the site; MkDocs loads this file as a hook."""

import re

from pygments.lexers.shell import BashSessionLexer

# In console blocks, only "$" is a prompt. By default "%" is one too, so the site would highlight and copy the lines of
# a plan, which begin with it, as commands.
BashSessionLexer._ps1rgx = re.compile(r"^(\$ )(.*\n?)")
