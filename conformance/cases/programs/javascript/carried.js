console.log("shared", third[0] === first.list, second.get("first") === first, third.error.cause === first);
console.log("cycles", second.get("self") === second, third[1].has(second));
console.log("values", Object.is(first.list[1], -0), first.list[2] === 2n ** 70n, first.when.getTime(), first.bytes.join(), second.has(1));
console.log("kinds", third[2].test("caa"), third.error instanceof RangeError, third.error.message, second instanceof Map);
third[2].lastIndex = 0;
