display("kept")
raise ValueError("after the display")
