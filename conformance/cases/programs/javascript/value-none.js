var answer = 6 * 7;
