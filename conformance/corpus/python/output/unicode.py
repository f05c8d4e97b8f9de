# Text beyond ASCII, and control characters.
print("żółć 日本語 🎉 \u200bzero\ttab")
