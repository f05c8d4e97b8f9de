# What is too large for a float is an exception.
import math

math.exp(1000)
