console.log("quotes \" ' `", 'braces { } [ ] ( )', "dollar $HOME ${HOME} $(id) `id`", "percent % %s %%d");
console.log("slash / \\ \\n", `three ''' """ end`, "tag </script> &amp;", "渐 é 😀");
