// super, and instanceof.
class A {
  who() {
    return "A";
  }
}
class B extends A {
  who() {
    return "B" + super.who();
  }
}
console.log(new B().who(), new B() instanceof A);
