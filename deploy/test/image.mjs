// The environment that the container images set.
import {readFileSync} from 'node:fs';
import {join} from 'node:path';

import {TREE} from './packages.mjs';

const CONTAINERFILE =
    readFileSync(join(TREE, 'deploy/container/Containerfile'), 'utf8');

// Of a base like Debian's.
export const BASE_ENVIRONMENT = {PATH: '/usr/local/bin:/usr/bin:/bin'};

// $NAME, ${NAME} and ${NAME:+WORD}, as in a Containerfile.
function expand(text, environment) {
  return text.replace(
      /\$\{(\w+):\+((?:[^{}]|\{[^{}]*\})*)\}|\$\{?(\w+)\}?/g,
      (_, tested, word, name) => name !== undefined ? environment[name] ?? '' :
          environment[tested] ? expand(word, environment) : '');
}

// What a container has in an image on a base with the environment `base`.
export function imageEnvironment(base) {
  const own = [...CONTAINERFILE.matchAll(/^ENV (\w+)=(.*)$/gm)].map(
      ([, name, value]) => [name, expand(value, base)]);
  return {...base, ...Object.fromEntries(own)};
}
