# Templates with names.
from string import Template

Template("$who owes $$${amount}").substitute(who="Ann", amount=5)
