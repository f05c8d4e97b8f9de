answer = 6 * 7
