// The story of the demo: who may be served where, a conversation that stays where its cache is warm, a region that is hot and
// cools down, a region that dies under load, and the only region of a tenant that dies.

import { EU_URL, KEYS } from '../demo/fleet.ts';
import { ask, type Answer, type Message } from './client.ts';
import { after, comesTrue, counted, prompt, type Playing, type Scene } from './scene.ts';
import { shareIn, Traffic, type Sent } from './traffic.ts';

const HELLO: readonly Message[] = [{ role: 'user', content: 'Hello' }];

const residency: Scene = {
  name: 'residency',
  title: 'A tenant is served where it may be, and nowhere else',
  async play(playing) {
    const { fleet, does, expects } = playing;
    does('"bank" asks five times; only frankfurt may serve it');
    const served: (string | null)[] = [];
    for (let k = 0; k < 5; k += 1) served.push((await askAs('bank', playing)).region);
    expects(
      'frankfurt 5',
      counted(served),
      served.every((region) => region === 'frankfurt'),
    );
    const tokyo = fleet.regionUrl('tokyo');
    if (tokyo !== null) {
      does('"bank" goes to the routers of tokyo themselves');
      const refused = await ask({ base: tokyo, key: KEYS.bank, messages: HELLO });
      expects('403 residency_violation', said(refused), refused.code === 'residency_violation');
    }
    does('"clinic", who must come in through the EU, asks the router in Asia');
    const misdirected = await askAs('clinic', playing);
    const told = misdirected.headers.get('x-spillway-ingress');
    expects(
      `421 misdirected_request, and told to go to ${EU_URL}`,
      `${said(misdirected)}, and told to go to ${told ?? 'nowhere'}`,
      misdirected.status === 421 && told === EU_URL,
    );
    does('somebody asks with a key of nobody');
    const unknown = await ask({ base: fleet.url, key: 'sk-demo-nobody', messages: HELLO });
    expects('401 invalid_api_key', said(unknown), unknown.code === 'invalid_api_key');
  },
};

const TURNS = 4;
const PEOPLE = 6;

const affinity: Scene = {
  name: 'affinity',
  title: 'A conversation stays where its cache is warm',
  async play(playing) {
    const { does, expects } = playing;
    does(`${PEOPLE} people of "shop" talk for ${TURNS} turns each`);
    const people = Array.from({ length: PEOPLE }, () => conversation(playing));
    const turns = (await Promise.all(people)).flat();
    const later = turns.filter(({ turn }) => turn > 0);
    const stayed = later.filter(({ stayed: here }) => here).length;
    expects(
      'every later turn in the region of the one before',
      `${stayed} of ${later.length}`,
      stayed === later.length && later.length === PEOPLE * (TURNS - 1),
    );
    const warm = later.filter(({ cachedTokens }) => (cachedTokens ?? 0) > 0).length;
    expects(
      'and with its prefix still cached (9 of 10 at least)',
      `${warm} of ${later.length}`,
      warm >= 0.9 * later.length,
    );
  },
};

interface Turn {
  readonly turn: number;
  readonly stayed: boolean;
  readonly cachedTokens: number | null;
}

async function conversation(playing: Playing): Promise<Turn[]> {
  const { random, fleet } = playing;
  const messages: Message[] = [{ role: 'system', content: prompt(400, random) }];
  const turns: Turn[] = [];
  let before: string | null = null;
  for (let turn = 0; turn < TURNS; turn += 1) {
    messages.push({ role: 'user', content: prompt(80, random) });
    const answer = await ask({ base: fleet.url, key: KEYS.shop, messages, maxTokens: 24 });
    const { region, text, cachedTokens } = answer;
    turns.push({ turn, stayed: region !== null && region === before, cachedTokens });
    before = region;
    messages.push({ role: 'assistant', content: text });
    await after(500 + 500 * random.next(), playing);
  }
  return turns;
}

/** New conversations a second, of so many tokens each, beyond what the two engines of a region compute (10,000 tokens/s). */
const HOT = { perS: 8, promptTokens: 2_000, maxTokens: 4 };
const HOT_MS = 30_000;
/** Well within it. */
const COOL = { perS: 2, promptTokens: 400, maxTokens: 4 };
const COOL_MS = 75_000;

const hot: Scene = {
  name: 'hot',
  title: 'A hot region spills new conversations to its neighbour, and takes them back',
  async play(playing) {
    const { clock, does, expects } = playing;
    does(
      `"shop" begins ${HOT.perS} conversations a second for ${HOT_MS / 1_000} s: tokyo can take 5`,
    );
    const traffic = trafficOf(HOT, playing);
    const beganMs = clock.nowMs();
    const spilled = await comesTrue(playing, { ms: HOT_MS, everyMs: 500 }, () => {
      return shareIn('singapore', traffic.since(beganMs)) > 0;
    });
    const firstMs = clock.nowMs() - beganMs;
    const bank = await askAs('bank', playing);
    await after(Math.max(0, HOT_MS - (clock.nowMs() - beganMs)), playing);
    const all = await traffic.end();
    const late = all.filter(({ sentMs }) => sentMs >= beganMs + HOT_MS / 2);
    expects(
      'new conversations begin to go to singapore',
      spilled ? `after ${seconds(firstMs)}` : 'none did',
      spilled,
    );
    const share = shareIn('singapore', late);
    expects(
      'in the second half a tenth to a half of them and a little more by the draw',
      `${percent(share)} (${counted(placesOf(late))})`,
      share >= 0.1 && share <= 0.6,
    );
    expects('none in frankfurt', counted(placesOf(all)), shareIn('frankfurt', all) === 0);
    expects('"bank" meanwhile in frankfurt', said(bank), bank.region === 'frankfurt');
    does('the load goes back to what tokyo can take');
    await coolsDown(playing);
  },
};

async function coolsDown(playing: Playing): Promise<void> {
  const { clock, expects } = playing;
  const traffic = trafficOf(COOL, playing);
  const fromMs = clock.nowMs();
  const lately = (): readonly Sent[] => traffic.since(Math.max(fromMs, clock.nowMs() - 6_000));
  const back = await comesTrue(playing, { ms: COOL_MS, everyMs: 500 }, () => {
    const sent = lately();
    return sent.length >= 8 && shareIn('tokyo', sent) === 1;
  });
  const tookMs = clock.nowMs() - fromMs;
  await traffic.end();
  expects(
    `all new conversations in tokyo again within ${COOL_MS / 1_000} s`,
    back ? `after ${seconds(tookMs)}` : 'not',
    back,
  );
}

/** Answers of some 2 s each: some are under way when the region dies. */
const DEATH = { perS: 3, promptTokens: 300, maxTokens: 200 };
const DEATH_MS = 9_000;
const BACK_MS = 45_000;

const death: Scene = {
  name: 'death',
  title: 'A region dies under load',
  async play(playing) {
    const { clock, fleet, does, expects } = playing;
    if (fleet.kill === null) {
      return expects('a process to kill', 'none is known: give --pid', false);
    }
    does(`"shop" begins ${DEATH.perS} conversations a second; after 3 s tokyo is killed`);
    const traffic = trafficOf(DEATH, playing);
    await after(3_000, playing);
    const killedMs = clock.nowMs();
    fleet.kill('tokyo');
    await after(DEATH_MS, playing);
    const bank = await askAs('bank', playing);
    const during = traffic.since(Number.NEGATIVE_INFINITY);
    const lost = during.filter(({ answer }) => !answer.begun && answer.status !== 200);
    expects(
      'no client gets an error before its first token',
      `${lost.length} of ${during.length}${lost.length === 0 ? '' : ` (${counted(lost.map(({ answer }) => said(answer)))})`}`,
      lost.length === 0 && during.length > 0,
    );
    const cut = during.filter(({ answer }) => answer.begun && !answer.complete);
    const typed = cut.filter(({ answer }) => answer.code !== null);
    expects(
      'a stream that had begun ends with an error, never as if it were whole',
      `${typed.length} of ${cut.length} that were cut`,
      typed.length === cut.length,
    );
    const next = traffic.since(killedMs + 1_000);
    expects(
      'new conversations go to singapore',
      counted(placesOf(next)),
      next.length > 0 && shareIn('singapore', next) === 1,
    );
    expects('"bank" meanwhile in frankfurt', said(bank), bank.region === 'frankfurt');
    does('tokyo is started again');
    const back = await comesTrue(playing, { ms: BACK_MS, everyMs: 500 }, () => {
      return shareIn('tokyo', traffic.since(clock.nowMs() - 3_000)) > 0;
    });
    const tookMs = clock.nowMs() - killedMs;
    await traffic.end();
    expects(
      `tokyo serves again within ${(DEATH_MS + BACK_MS) / 1_000} s of its death`,
      back ? `after ${seconds(tookMs)}` : 'not',
      back,
    );
  },
};

const NO_REGION: readonly (string | null)[] = ['no_healthy_region', 'upstream_failed'];

const lastRegion: Scene = {
  name: 'last',
  title: 'The only region of a tenant dies',
  async play(playing) {
    const { fleet, does, expects } = playing;
    if (fleet.kill === null) {
      return expects('a process to kill', 'none is known: give --pid', false);
    }
    does('frankfurt is killed; "bank" may be served nowhere else');
    fleet.kill('frankfurt');
    const answers: Answer[] = [];
    for (let k = 0; k < 4; k += 1) {
      answers.push(await askAs('bank', playing));
      await after(1_000, playing);
    }
    const typed = answers.every(({ code, status }) => status === 503 || NO_REGION.includes(code));
    expects(
      '"bank" is refused with a typed error: 503 no_healthy_region, the first may be 502',
      counted(answers.map(said)),
      typed,
    );
    expects(
      'and served by no other region',
      counted(answers.map(({ region, status }) => (status === 200 ? region : 'nowhere'))),
      answers.every(({ status }) => status !== 200),
    );
    const shop = await askAs('shop', playing);
    expects('"shop" notices nothing', said(shop), shop.status === 200);
  },
};

export const SCENES: readonly Scene[] = [residency, affinity, hot, death, lastRegion];

function askAs(tenant: keyof typeof KEYS, { fleet }: Playing): Promise<Answer> {
  return ask({ base: fleet.url, key: KEYS[tenant], messages: HELLO });
}

function trafficOf(
  how: { readonly perS: number; readonly promptTokens: number; readonly maxTokens: number },
  playing: Playing,
): Traffic {
  return new Traffic({ base: playing.fleet.url, key: KEYS.shop, ...how }, playing);
}

/** Where each was served, or why not. */
function placesOf(sent: readonly Sent[]): string[] {
  return sent.map(({ answer }) => answer.region ?? said(answer));
}

/** `200 frankfurt`, `403 residency_violation`. */
function said({ status, code, region }: Answer): string {
  if (status === null) return 'no answer';
  return `${status} ${code ?? region ?? ''}`.trim();
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`;
}

function percent(ratio: number): string {
  return `${Math.round(ratio * 100)} %`;
}
