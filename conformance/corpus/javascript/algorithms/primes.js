// A sieve.
const sieve = new Uint8Array(10000).fill(1);
const primes = [];
for (let i = 2; i < sieve.length; i++) {
  if (!sieve[i]) continue;
  primes.push(i);
  for (let j = i * i; j < sieve.length; j += i) sieve[j] = 0;
}
console.log(primes.length, primes.slice(0, 5));
