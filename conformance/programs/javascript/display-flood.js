for (;;) display(1);
