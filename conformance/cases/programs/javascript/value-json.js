({ name: "渐", list: [1, 2.5, true, null] });
