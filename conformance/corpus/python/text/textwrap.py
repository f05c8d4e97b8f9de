# Paragraphs are filled and indented.
import textwrap

print(textwrap.fill("the quick brown fox jumps over the lazy dog " * 3, width=40, initial_indent="* ", subsequent_indent="  "))
textwrap.dedent("""
    two
      lines
""")
