// Private fields, accessors, statics.
class Account {
  #balance = 0;
  static count = 0;
  constructor() {
    Account.count++;
  }
  deposit(x) {
    this.#balance += x;
    return this;
  }
  get balance() {
    return this.#balance;
  }
}
console.log(new Account().deposit(5).balance, Account.count);
