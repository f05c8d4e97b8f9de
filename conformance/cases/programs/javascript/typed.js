interface Named<T> {
  readonly name: T;
  note?: string;
}
enum Kind {
  Plain = 1,
  Fancy,
}
abstract class Base {
  abstract show(kind: Kind): string;
}
class Line extends Base implements Named<string> {
  constructor(public name: string) {
    super();
  }
  show(kind: Kind): string {
    return kind === Kind.Fancy ? this.name : Kind[kind];
  }
}
declare const nowhere: unique symbol;
const line = new Line({{text}}) satisfies Base;
console.log((line as Line).show(Kind["Fancy"])!);
