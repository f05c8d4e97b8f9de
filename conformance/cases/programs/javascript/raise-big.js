throw new RangeError("x".repeat({{count}}));
