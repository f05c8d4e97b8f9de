!echo "$(printf %s {{text}})"
