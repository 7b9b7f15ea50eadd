/* The lease protocol for two brokers and the distributors that lead in turn: an envelope of K units never has more than K in force, under loss, delay,
 * repetition and reordering of messages, stops, kills and restarts of brokers, and takeovers. `make model` checks it for the timed rule, and with -DKEEP for "keep".
 *
 * Time: a tick ages all messages and silences, and takes from what is left of leases, also of a broker that is stopped. So clocks here run equally fast; M is the
 * margin. A message older than L ticks renews nothing. What the distributor issues is stored before it is told; what brokers acknowledge is stored with the next change,
 * or a little later, so that a takeover may forget it; what is only observed (silence) starts anew with a takeover. Two leaders at a time are the election's to prevent, and a deposed one neither answers nor stores.
 *
 * A broker that begins again is another process, and only after the earlier one: `restart` is of one that is not up. A second one of a name, on a copy of the data
 * directory or with the address of the first, is refused (distributor/model/incarnations.py), which is no step.
 *
 * Names are those of distributor/leases.py and broker/lease_holder.py. Every step prints itself; tests/model replays such runs through that code.
 */
#define N 2
#define K 2      /* units */
#define L 2      /* ticks of a lease */
#define M 1      /* of the margin */
#ifndef VERSIONS
#define VERSIONS 5
#endif
#ifndef LIVES
#define LIVES 2  /* incarnations of each broker */
#endif
#ifndef ANSWERS
#define ANSWERS 2
#endif

#define MIN(x, y) ((x) < (y) -> (x) : (y))

/* the distributor's book; of what was acknowledged (applied, and the bound that fell with it) the store may be behind */
byte version;
byte target[N], issued[N], share[N], bound[N], applied[N], known[N];
byte storedBound[N], storedApplied[N];
bool holds[N];
/* what it observes */
byte quiet[N];

/* brokers */
bool up[N] = true;
bool stopped[N];
byte life[N] = 1, inForce[N], amount[N], left[N];

/* the network: a request of each broker, some answers to each */
bool asks[N];
byte askLife[N], askApplied[N], askAge[N];
typedef Answer { bool there; byte life, version, share, age };
Answer answers[N * ANSWERS];

#ifdef KEEP
#define LASTS(b) true
#else
#define LASTS(b) (left[b] > 0)
#endif
#define IN_FORCE(b) (up[b] && LASTS(b) -> amount[b] : 0)
#define LEASE_OVER(b) (quiet[b] > L + M && (bound[b] > 0 || target[b] > 0))

byte i, j, want0, want1, free, total, next, was;
bool late;

/* Leases.advanced: shrink now, grow by what is free. `late`: somebody who is waited for has yet to acknowledge. */
inline advance(waits) {
  next = version + 1; late = false;
  i = 0;
  do
  :: i < N ->
     if :: holds[i] && share[i] > target[i] -> share[i] = target[i]; issued[i] = next; version = next :: else fi;
     late = late || (holds[i] && bound[i] != share[i]);
     i++
  :: else -> break
  od;
  want0 = ((!holds[0] || applied[0] == issued[0]) -> target[0] - share[0] : 0);
  want1 = ((!holds[1] || applied[1] == issued[1]) -> target[1] - share[1] : 0);
  free = K - bound[0] - bound[1]; total = want0 + want1;
  if
  :: total > free && late && waits -> skip
  :: else ->
     if :: total > free -> want0 = want0 * free / total; want1 = want1 * free / total :: else fi;
     if :: want0 > 0 -> grow(0, want0) :: else fi;
     if :: want1 > 0 -> grow(1, want1) :: else fi
  fi;
  want0 = 0; want1 = 0; free = 0; total = 0; i = 0; late = false; next = 0
}

inline grow(b, more) {
  share[b] = share[b] + more; bound[b] = share[b]; issued[b] = next; version = next; holds[b] = true
}

/* ClusterState.commit, and ClusterState.store_acknowledged */
inline store() {
  storedBound[0] = bound[0]; storedBound[1] = bound[1]; storedApplied[0] = applied[0]; storedApplied[1] = applied[1]
}

/* the next leader reads what is stored */
inline takeover() {
  bound[0] = storedBound[0]; bound[1] = storedBound[1]; applied[0] = storedApplied[0]; applied[1] = storedApplied[1];
  quiet[0] = 0; quiet[1] = 0
}

/* Leases.freed, and the other one is to have all */
inline release(b) {
  version++; issued[b] = version;
  holds[b] = false; share[b] = 0; bound[b] = 0; applied[b] = 0;
  target[b] = 0; target[1 - b] = K
}

inline hear(b, waits) {
  quiet[b] = 0; was = version;
  if
  :: askLife[b] > known[b] ->
     if
     :: known[b] > 0 && holds[b] -> version++; issued[b] = version; bound[b] = share[b]; applied[b] = (share[b] == 0 -> version : 0)
     :: else
     fi;
     known[b] = askLife[b]
  :: else ->
     if
     :: holds[b] && askApplied[b] == issued[b] && applied[b] != issued[b] -> applied[b] = issued[b]; bound[b] = share[b]
     :: else
     fi
  fi;
  advance(waits);
  if :: version != was -> store() :: else fi; /* else it is an acknowledgement: stored later */
  was = 0
}

inline answer(b, slot) {
  answers[slot].there = true; answers[slot].life = askLife[b]; answers[slot].age = askAge[b];
  answers[slot].version = issued[b]; answers[slot].share = share[b]
}

/* LeaseHolder.apply */
inline take(b, slot) {
  if
  :: answers[slot].life != life[b] || answers[slot].version < inForce[b] -> skip
  :: else ->
     if
     :: answers[slot].version > inForce[b] -> inForce[b] = answers[slot].version; amount[b] = answers[slot].share; left[b] = 0
     :: else
     fi;
     if :: amount[b] > 0 && L - answers[slot].age > left[b] -> left[b] = L - answers[slot].age :: else fi
  fi
}

inline forget(slot) {
  answers[slot].there = false; answers[slot].life = 0; answers[slot].version = 0; answers[slot].share = 0; answers[slot].age = 0
}

inline tick() {
  for (i : 0 .. N - 1) {
    quiet[i] = MIN(quiet[i] + 1, L + M + 1);
    if :: left[i] > 0 -> left[i]-- :: else fi;
    if :: asks[i] -> askAge[i] = MIN(askAge[i] + 1, L) :: else fi
  }
  for (j : 0 .. N * ANSWERS - 1) {
    if :: answers[j].there -> answers[j].age = MIN(answers[j].age + 1, L) :: else fi
  }
  i = 0; j = 0
}

inline told() {
  printf("= %d %d | %d %d %d | %d %d %d\n", IN_FORCE(0), IN_FORCE(1), issued[0], share[0], bound[0], issued[1], share[1], bound[1]);
  assert(IN_FORCE(0) + IN_FORCE(1) <= K);
  assert(bound[0] + bound[1] <= K)
}

/* room for the versions that one step may make */
#define MAY_CHANGE (version + 2 <= VERSIONS)

inline of_broker(b) {
  if
  :: up[b] && !stopped[b] -> printf("send %d\n", b); asks[b] = true; askLife[b] = life[b]; askApplied[b] = inForce[b]; askAge[b] = 0
  :: asks[b] && askLife[b] >= known[b] && MAY_CHANGE -> printf("hear %d waits 0\n", b); hear(b, true); answer(b, ANSWERS * b)
  :: asks[b] && askLife[b] >= known[b] && MAY_CHANGE -> printf("hear %d hurries 0\n", b); hear(b, false); answer(b, ANSWERS * b)
  :: up[b] && !stopped[b] && answers[ANSWERS * b].there -> printf("take %d 0\n", b); take(b, ANSWERS * b)
  :: up[b] -> printf("kill %d\n", b); up[b] = false; stopped[b] = false; inForce[b] = 0; amount[b] = 0; left[b] = 0
  :: !up[b] && life[b] < LIVES -> printf("restart %d\n", b); up[b] = true; life[b]++
  :: !up[b] && known[b] == life[b] && MAY_CHANGE && (bound[b] > 0 || target[b] > 0) -> printf("prove %d\n", b); release(b); advance(true); store()
#if ANSWERS > 1 /* a second answer, which may overtake the first */
  :: asks[b] && askLife[b] >= known[b] && MAY_CHANGE -> printf("hear %d waits 1\n", b); hear(b, true); answer(b, ANSWERS * b + 1)
  :: up[b] && !stopped[b] && answers[ANSWERS * b + 1].there -> printf("take %d 1\n", b); take(b, ANSWERS * b + 1)
#endif
#ifdef RUN /* for runs that are worth replaying: what is the same as not being chosen (a message lost, a process stopped, whose lease runs on), and once more
            * what would be chosen too seldom, for a simulation takes each option that there is equally often */
  :: up[b] && !stopped[b] && !asks[b] -> printf("send %d\n", b); asks[b] = true; askLife[b] = life[b]; askApplied[b] = inForce[b]; askAge[b] = 0
  :: asks[b] && askLife[b] >= known[b] && MAY_CHANGE -> printf("hear %d waits 0\n", b); hear(b, true); answer(b, ANSWERS * b)
  :: asks[b] && askLife[b] >= known[b] && MAY_CHANGE -> printf("hear %d waits 0\n", b); hear(b, true); answer(b, ANSWERS * b)
  :: up[b] && !stopped[b] && answers[ANSWERS * b].there -> printf("take %d 0\n", b); take(b, ANSWERS * b)
  :: up[b] && !stopped[b] && answers[ANSWERS * b].there -> printf("take %d 0\n", b); take(b, ANSWERS * b)
  :: asks[b] -> printf("lose %d\n", b); asks[b] = false; askLife[b] = 0; askApplied[b] = 0; askAge[b] = 0
  :: answers[ANSWERS * b].there -> printf("drop %d 0\n", b); forget(ANSWERS * b)
  :: answers[ANSWERS * b + 1].there -> printf("drop %d 1\n", b); forget(ANSWERS * b + 1)
  :: up[b] && !stopped[b] -> printf("stop %d\n", b); stopped[b] = true
  :: up[b] && stopped[b] -> printf("go_on %d\n", b); stopped[b] = false
  :: up[b] && stopped[b] -> printf("go_on %d\n", b); stopped[b] = false
#endif
#ifndef KEEP
  :: LEASE_OVER(b) && MAY_CHANGE -> printf("lapse %d\n", b); release(b); advance(true); store()
#endif
  :: MAY_CHANGE && target[b] < K -> printf("aim %d\n", b); target[b] = K; target[1 - b] = 0; advance(true); store()
  fi
}

init {
  do
  :: atomic { of_broker(0); told() }
  :: atomic { of_broker(1); told() }
#ifdef RUN
  :: atomic { of_broker(0); told() }
  :: atomic { of_broker(1); told() }
  :: atomic { of_broker(0); told() }
  :: atomic { of_broker(1); told() }
  :: atomic { of_broker(0); told() }
  :: atomic { of_broker(1); told() }
#endif
  :: atomic { MAY_CHANGE && target[0] != 1; printf("share\n"); target[0] = 1; target[1] = 1; advance(true); store(); told() }
  :: atomic { printf("takeover\n"); takeover(); told() }
  :: atomic { bound[0] != storedBound[0] || bound[1] != storedBound[1] || applied[0] != storedApplied[0] || applied[1] != storedApplied[1] ->
              printf("store\n"); store(); told() }
#if !defined(KEEP) || defined(RUN)
  :: atomic { printf("tick\n"); tick(); told() }
#endif
  od
}
