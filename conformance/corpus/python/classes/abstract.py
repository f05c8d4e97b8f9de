# What is abstract is not made.
from abc import ABC, abstractmethod


class Shape(ABC):
    @abstractmethod
    def area(self): ...


try:
    Shape()
except TypeError as e:
    print(str(e).split(" with")[0])
