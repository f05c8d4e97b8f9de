print("quotes \" ' `", 'braces { } [ ] ( )', "dollar $HOME ${HOME} $(id) `id`", "percent % %s %%d")
print("slash / \\ \\n", """three ''' \"\"\" end""", "tag </script> &amp;", "渐 é 😀")
