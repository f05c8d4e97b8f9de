# Mean, median and deviation of a list.
import statistics

data = [2.75, 1.75, 1.25, 0.25, 0.5, 1.25, 3.5]
print(statistics.mean(data), statistics.median(data), round(statistics.stdev(data), 10))
statistics.quantiles(data, n=4)
