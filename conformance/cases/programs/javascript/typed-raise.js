type Thrown = {
  message: string;
};
function fail<T extends Thrown>(
  thrown: T,
): never {
  throw new RangeError(thrown.message);
}

fail<Thrown>({ message: {{message}} } as Thrown);
