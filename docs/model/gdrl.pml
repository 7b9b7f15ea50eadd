/* GDRL for N brokers: what they exchange among themselves never sums to more than the K units that were dealt, and leaving the exchange costs nobody its share,
 * under loss, delay, repetition and reordering of messages, stops, kills and restarts of brokers, proof of death. `make model` checks it.
 *
 * A message that was sent may arrive at any time from then on, any number of times, or never. What an exchange moves is whatever the asked likes: this is about
 * counting each transfer once, not about how much. Epochs (`gen` counts them) tell one pool from the next. Syncs are those of leases.pml, without their repetition.
 *
 * Names are those of adaptor/ledger.py, broker/exchanges.py, distributor/leases.py. Every step prints itself; tests/model replays such runs through that code.
 */
#ifndef N
#define N 2
#endif
#ifndef K
#define K 4        /* units, a multiple of N and of N - 1 */
#endif
#ifndef VERSIONS
#define VERSIONS 6
#endif
#ifndef LIVES
#define LIVES 2    /* incarnations of each broker */
#endif
#ifndef POOLS
#define POOLS 2
#endif
#ifndef NUMBERS
#define NUMBERS 2  /* offers of each broker to each other, in each pool */
#endif

#define PAIR(i, j) ((i) * N + (j))
#define SLOT(g, i, j, n) ((((g) - 1) * N * N + PAIR(i, j)) * NUMBERS + (n) - 1)
#define MIN(x, y) ((x) < (y) -> (x) : (y))

/* the distributor's store */
byte version, pool, gen;
bool recalling, gdrl = true;
byte target[N], issued[N], share[N], bound[N], applied[N], known[N];
bool holds[N];

/* brokers; `part`: of which pool, 0: of none; `had`: was given a share in this life */
bool up[N] = true, had[N];
byte life[N] = 1, inForce[N], amount[N], part[N];

/* ledgers: row i asks, column j is asked */
byte number[N * N], owed[N * N], asked[N * N];
bool waits[N * N], paid[N * N];

/* messages among brokers, by pool, pair and number: once there, for ever */
bool offered[POOLS * N * N * NUMBERS], replied[POOLS * N * N * NUMBERS], sent[POOLS * N * N * NUMBERS], acked[POOLS * N * N * NUMBERS];
byte gives[POOLS * N * N * NUMBERS], wants[POOLS * N * N * NUMBERS], pays[POOLS * N * N * NUMBERS];

/* messages to and from the distributor, the latest of each broker */
bool asks[N], answers[N];
byte askLife[N], askApplied[N], askHeld[N], ansLife[N], ansVersion[N], ansShare[N], ansPart[N];
bool ansRecall[N];

byte x, next, free, total, most;
short s;
bool late;

#define RECALLED(b) (pool > 0 && holds[b] && issued[b] > pool)

/* Leases.advanced: who is in a pool that ends is told, then heard; else shrink now, grow by what is free */
inline advance() {
  next = version + 1; late = false;
  if
  :: pool > 0 && recalling -> ending()
  :: else
  fi;
  if
  :: pool == 0 -> deal()
  :: else
  fi;
  next = 0; x = 0; free = 0; total = 0; late = false
}

inline ending() {
  for (x : 0 .. N - 1) {
    if :: holds[x] && bound[x] > 0 && issued[x] <= pool -> issued[x] = next; version = next; late = true :: else fi;
    late = late || (holds[x] && bound[x] > 0 && applied[x] != issued[x])
  }
  if
  :: !late ->
     total = 0; free = 0;
     for (x : 0 .. N - 1) { total = total + share[x]; free = free + bound[x] }
     assert(total <= free); /* nobody says more than there can be */
     for (x : 0 .. N - 1) { bound[x] = share[x] }
     pool = 0; recalling = false
  :: else
  fi
}

inline deal() {
  late = false; free = K; total = 0;
  for (x : 0 .. N - 1) {
    if :: holds[x] && share[x] > target[x] -> share[x] = target[x]; issued[x] = next; version = next :: else fi;
    free = free - bound[x];
    if :: target[x] > share[x] && (!holds[x] || applied[x] == issued[x]) -> total = total + target[x] - share[x] :: else fi
  }
  if
  :: total <= free ->
     for (x : 0 .. N - 1) {
       if
       :: target[x] > share[x] && (!holds[x] || applied[x] == issued[x]) ->
          share[x] = target[x]; bound[x] = share[x]; issued[x] = next; version = next; holds[x] = true
       :: else
       fi
     }
  :: else
  fi
}

/* Leases.as_pool */
inline begin() {
  if
  :: gdrl && pool == 0 && gen < POOLS ->
     total = 0; late = false; next = 0;
     for (x : 0 .. N - 1) {
       total = total + share[x];
       late = late || share[x] != target[x] || (holds[x] && applied[x] != issued[x]);
       if :: holds[x] && issued[x] > next -> next = issued[x] :: else fi
     }
     if :: total == K && !late -> pool = next; gen++ :: else fi
  :: else
  fi;
  next = 0; x = 0; total = 0; late = false
}

inline hear(b) {
  if
  :: askLife[b] > known[b] ->
     if
     :: known[b] > 0 && holds[b] && pool > 0 && bound[b] > 0 -> version++; issued[b] = version; share[b] = 0; applied[b] = version; recalling = true
     :: known[b] > 0 && holds[b] && !(pool > 0 && bound[b] > 0) -> version++; issued[b] = version; bound[b] = share[b]; applied[b] = (share[b] == 0 -> version : 0)
     :: else
     fi;
     known[b] = askLife[b]
  :: else ->
     if
     :: holds[b] && askApplied[b] == issued[b] && applied[b] != issued[b] ->
        applied[b] = issued[b];
        if :: pool > 0 -> share[b] = askHeld[b] :: else -> bound[b] = share[b] fi
     :: else
     fi
  fi;
  advance(); begin();
  answers[b] = true; ansLife[b] = askLife[b]; ansVersion[b] = issued[b];
  ansRecall[b] = RECALLED(b);
  ansShare[b] = (ansRecall[b] -> 0 : share[b]);
  ansPart[b] = ((pool > 0 && !ansRecall[b] && share[b] > 0 && target[b] > 0) -> gen : 0)
}

/* LeaseHolder.apply, Exchanges.follow */
inline take(b) {
  if
  :: ansLife[b] != life[b] || ansVersion[b] < inForce[b] -> skip
  :: else ->
     if
     :: ansVersion[b] > inForce[b] && !ansRecall[b] -> amount[b] = ansShare[b]
     :: else
     fi;
     inForce[b] = ansVersion[b];
     if :: amount[b] > 0 -> had[b] = true :: else fi;
     if :: ansPart[b] != part[b] -> part[b] = ansPart[b]; anew(b) :: else fi
  fi
}

inline anew(b) {
  for (x : 0 .. N - 1) {
    number[PAIR(b, x)] = 0; owed[PAIR(b, x)] = 0; waits[PAIR(b, x)] = false;
    asked[PAIR(x, b)] = 0; paid[PAIR(x, b)] = false
  }
  x = 0
}

/* Leases.freed: of what it had any of the other members may have all; and they are to have it */
inline release(b) {
  version++;
  if
  :: holds[b] && pool > 0 ->
     next = N;
     for (x : 0 .. N - 1) { if :: x != b && holds[x] && bound[x] > 0 && next == N -> next = x :: else fi }
     if :: next < N -> bound[next] = bound[next] + bound[b]; recalling = true :: else -> pool = 0; recalling = false fi
  :: else
  fi;
  issued[b] = version; holds[b] = false; share[b] = 0; bound[b] = 0; applied[b] = 0; next = 0;
  total = 0;
  for (x : 0 .. N - 1) { if :: x != b && target[x] > 0 -> total++ :: else fi }
  if
  :: total > 0 ->
     for (x : 0 .. N - 1) { target[x] = ((x != b && target[x] > 0) -> K / total : 0) }
     if :: pool > 0 -> recalling = true :: else fi
  :: else
  fi;
  x = 0; total = 0
}

inline told() {
  total = 0; free = 0;
  printf("= %d |", pool);
  for (x : 0 .. N - 1) {
    printf(" %d %d %d %d %d |", (up[x] -> amount[x] : 0), part[x], issued[x], share[x], bound[x]);
    total = total + (up[x] -> amount[x] : 0); free = free + bound[x]
  }
  printf("\n");
  assert(total <= K);
  assert(free <= K);
  x = 0; total = 0; free = 0
}

inline has_share(b) { assert(!had[b] || amount[b] > 0) }

/* room for the versions that one step may make */
#define MAY_CHANGE (version + 2 <= VERSIONS)

#ifdef RUN
#define MAY_REPEAT true
byte luck;
#define RARELY(what) ((what) && luck == 0)
#else
#define RARELY(what) (what)
#define MAY_REPEAT false  /* what changes nothing need not be checked */
#endif

inline of_broker(b) {
  if
  :: up[b] -> printf("send %d\n", b); asks[b] = true; askLife[b] = life[b]; askApplied[b] = inForce[b]; askHeld[b] = amount[b]
  :: asks[b] && askLife[b] >= known[b] && MAY_CHANGE -> printf("hear %d\n", b); hear(b)
  :: up[b] && answers[b] -> printf("take %d\n", b); take(b)
  :: RARELY(up[b] && life[b] < LIVES) -> printf("kill %d\n", b); up[b] = false; had[b] = false; inForce[b] = 0; amount[b] = 0; part[b] = 0; anew(b)
  :: !up[b] && life[b] < LIVES -> printf("restart %d\n", b); up[b] = true; life[b]++
  :: !up[b] && known[b] == life[b] && MAY_CHANGE && (bound[b] > 0 || target[b] > 0) -> printf("prove %d\n", b); release(b); advance()
#ifdef RUN /* once more what would be chosen too seldom */
  :: up[b] -> printf("send %d\n", b); asks[b] = true; askLife[b] = life[b]; askApplied[b] = inForce[b]; askHeld[b] = amount[b]
  :: asks[b] && askLife[b] >= known[b] && MAY_CHANGE -> printf("hear %d\n", b); hear(b)
  :: asks[b] && askLife[b] >= known[b] && MAY_CHANGE -> printf("hear %d\n", b); hear(b)
  :: up[b] && answers[b] -> printf("take %d\n", b); take(b)
  :: up[b] && answers[b] -> printf("take %d\n", b); take(b)
#endif
  :: else
  fi;
  has_share(b)
}

#define MAY_OFFER(i, j) (waits[PAIR(i, j)] -> MAY_REPEAT : number[PAIR(i, j)] < NUMBERS)
#define MAY_ASK(i, j) (owed[PAIR(i, j)] > 0 || MAY_OFFER(i, j))

/* Ledger.offer, owed */
inline ask(i, j) {
  if
  :: owed[PAIR(i, j)] > 0 ->
     s = SLOT(part[i], i, j, number[PAIR(i, j)]); sent[s] = true; pays[s] = owed[PAIR(i, j)]; printf("pay %d %d\n", i, j)
  :: owed[PAIR(i, j)] == 0 && !waits[PAIR(i, j)] && number[PAIR(i, j)] < NUMBERS ->
     number[PAIR(i, j)]++; waits[PAIR(i, j)] = true;
     offered[SLOT(part[i], i, j, number[PAIR(i, j)])] = true; printf("offer %d %d\n", i, j)
  :: owed[PAIR(i, j)] == 0 && waits[PAIR(i, j)] && MAY_REPEAT -> printf("offer %d %d\n", i, j)
  fi
}

/* Ledger.answer: any amount given, or any asked for */
inline answer(i, j, g, m) {
  if
  :: part[j] != g || m < asked[PAIR(i, j)] -> printf("refuse %d %d %d %d\n", i, j, g, m)
  :: part[j] == g && m == asked[PAIR(i, j)] -> printf("again %d %d %d %d %d %d\n", i, j, g, m, gives[s], wants[s])
  :: part[j] == g && m > asked[PAIR(i, j)] ->
     asked[PAIR(i, j)] = m; paid[PAIR(i, j)] = false; replied[s] = true; most = amount[j] - 1;
     if
     :: most >= 1 -> gives[s] = 1
     :: most >= 2 -> gives[s] = most
     :: wants[s] = 1
     :: wants[s] = 2
     fi;
     amount[j] = amount[j] - gives[s];
     printf("answer %d %d %d %d %d %d\n", i, j, g, m, gives[s], wants[s])
  fi
}

/* Ledger.settle */
inline settle(i, j, g, m) {
  printf("settle %d %d %d %d\n", i, j, g, m);
  if
  :: part[i] == g && waits[PAIR(i, j)] && m == number[PAIR(i, j)] ->
     waits[PAIR(i, j)] = false; amount[i] = amount[i] + gives[s];
     owed[PAIR(i, j)] = MIN(wants[s], amount[i] - 1); amount[i] = amount[i] - owed[PAIR(i, j)]
  :: else
  fi
}

/* Ledger.credit */
inline credit(i, j, g, m) {
  if
  :: part[j] == g && m <= asked[PAIR(i, j)] ->
     if :: m == asked[PAIR(i, j)] && !paid[PAIR(i, j)] -> paid[PAIR(i, j)] = true; amount[j] = amount[j] + pays[s] :: else fi;
     acked[s] = true; printf("credit %d %d %d %d\n", i, j, g, m)
  :: else -> printf("spurn %d %d %d %d\n", i, j, g, m)
  fi
}

inline credited(i, j, g, m) {
  printf("credited %d %d %d %d\n", i, j, g, m);
  if :: part[i] == g && m == number[PAIR(i, j)] -> owed[PAIR(i, j)] = 0 :: else fi
}

/* something among brokers i and j, of pool g and number m where it is a message */
inline of_pair(i, j, g, m) {
  s = SLOT(g, i, j, m);
  if
  :: up[i] && part[i] == g && m == 1 && MAY_ASK(i, j) -> ask(i, j)
  :: up[j] && offered[s] && (MAY_REPEAT || (part[j] == g && m > asked[PAIR(i, j)])) -> answer(i, j, g, m)
  :: up[i] && replied[s] && (MAY_REPEAT || (part[i] == g && waits[PAIR(i, j)] && m == number[PAIR(i, j)])) -> settle(i, j, g, m)
  :: up[j] && sent[s] && (MAY_REPEAT || part[j] == g) -> credit(i, j, g, m)
  :: up[i] && acked[s] && (MAY_REPEAT || (part[i] == g && m == number[PAIR(i, j)] && owed[PAIR(i, j)] > 0)) -> credited(i, j, g, m)
  :: else
  fi;
  s = 0; most = 0;
  has_share(i); has_share(j)
}

#if N == 2
#define SOME_OUT (target[0] == 0 || target[1] == 0)
#else
#define SOME_OUT (target[0] == 0 || target[1] == 0 || target[2] == 0)
#endif

inline rejoin() {
  for (x : 0 .. N - 1) { target[x] = K / N }
  x = 0;
  if :: pool > 0 -> recalling = true :: else fi
}

/* for runs that are worth replaying: of this pool mostly, and of the offer made last */
inline near(i, j, g, m) {
  select (i : 0 .. N - 1); select (j : 0 .. N - 1);
  if :: g = gen :: g = gen :: g = gen :: gen > 1 -> g = gen - 1 fi;
  m = number[PAIR(i, j)];
  if :: m == 0 -> m = 1 :: m > 1 -> m-- :: m > 0 -> skip :: m > 0 -> skip fi;
  if :: i != j -> of_pair(i, j, g, m) :: else fi;
  told(); i = 0; j = 0; g = 0; m = 0
}

active proctype system() {
  byte b, i, j, g, m;
  for (b : 0 .. N - 1) { target[b] = K / N }
  b = 0;
  do
  :: atomic { select (b : 0 .. N - 1); of_broker(b); told(); b = 0 }
#ifdef RUN
  :: atomic { select (luck : 0 .. 15) }
  :: atomic { select (luck : 0 .. 15); select (b : 0 .. N - 1); of_broker(b); told(); b = 0 }
  :: atomic { select (b : 0 .. N - 1); of_broker(b); told(); b = 0 }
#endif
#ifdef RUN
  :: atomic { gen > 0 -> near(i, j, g, m) }
  :: atomic { gen > 0 -> near(i, j, g, m) }
  :: atomic { gen > 0 -> near(i, j, g, m) }
  :: atomic { gen > 0 -> near(i, j, g, m) }
  :: atomic { gen > 0 -> near(i, j, g, m) }
  :: atomic { gen > 0 -> near(i, j, g, m) }
  :: atomic { gen > 0 -> near(i, j, g, m) }
  :: atomic { gen > 0 -> near(i, j, g, m) }
#endif
  :: atomic { gen > 0 -> select (i : 0 .. N - 1); select (j : 0 .. N - 1); select (g : 1 .. gen); select (m : 1 .. NUMBERS);
       if :: i != j -> of_pair(i, j, g, m) :: else fi;
       told(); i = 0; j = 0; g = 0; m = 0 }
  :: atomic { RARELY(gdrl && pool > 0 && MAY_CHANGE) -> printf("leave\n"); gdrl = false; recalling = true; advance(); told() }
  :: atomic { RARELY(SOME_OUT && MAY_CHANGE) -> printf("join\n"); rejoin(); advance(); told() }
  :: atomic { !gdrl && MAY_CHANGE -> printf("enter\n"); gdrl = true; begin(); advance(); told() }
  od
}
