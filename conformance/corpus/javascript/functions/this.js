// this in arrows and methods.
const o = {
  x: 1,
  method() {
    return [1].map(() => this.x)[0];
  },
};
console.log(o.method());
