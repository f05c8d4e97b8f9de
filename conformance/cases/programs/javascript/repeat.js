console.log({{text}}.repeat({{count}}));
