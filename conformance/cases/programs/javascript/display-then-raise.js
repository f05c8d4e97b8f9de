display("kept");
throw new RangeError("after the display");
