// Measures two-phase transfers against a running TigerBeetle. They correspond to placing and
// settling a hold.
//
// Each session has one request in flight, as the protocol requires: BATCH pending transfers of
// random orgs to one account of the platform, then BATCH transfers that post half of each pending
// amount. At the end all accounts are looked up: the posted sum must match the answers, and nothing
// may be pending.
//
//     pairs ADDRESS BATCH SESSIONS SECONDS ACCOUNTS      prints pairs per second

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tb_client.h"

enum { LEDGER = 1, CODE = 1, PLATFORM = 1, FIRST_ORG = 2, LARGEST_BATCH = 8189 };
enum { HELD = 100, SETTLED = 50 };

static const uint64_t GRANTED = 1000000000000000ull;

typedef struct {
    tb_client_t client;
    tb_packet_t packet;
    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool done;
    uint32_t expected_status;
    size_t answers;
    uint64_t random;
    uint64_t next_id;
    uint64_t pairs;
    tb_transfer_t *pending;
    tb_transfer_t *posts;
    // Sums over the accounts that were looked up.
    tb_uint128_t posted, still_pending;
} session_t;

static unsigned batch, sessions, accounts;
static double seconds;
static const char *address;

static void fail(const char *what, unsigned code) {
    fprintf(stderr, "tigerbeetle: %s (%u)\n", what, code);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void on_answer(uintptr_t context, tb_packet_t *packet, uint64_t at, const uint8_t *bytes, uint32_t size) {
    (void)at;
    session_t *s = (session_t *)context;
    if (packet->status != TB_PACKET_OK) fail("a request was not taken", packet->status);
    if (packet->operation == TB_OPERATION_LOOKUP_ACCOUNTS) {
        const tb_account_t *found = (const tb_account_t *)bytes;
        s->answers = size / sizeof *found;
        for (size_t i = 0; i < s->answers; i++) {
            s->posted += found[i].debits_posted;
            s->still_pending += found[i].debits_pending;
        }
    } else {
        // Creating accounts and creating transfers have the same result format.
        const tb_create_transfer_result_t *results = (const tb_create_transfer_result_t *)bytes;
        s->answers = size / sizeof *results;
        for (size_t i = 0; i < s->answers; i++)
            if (results[i].status != TB_CREATE_TRANSFER_CREATED) fail("refused", results[i].status);
    }
    pthread_mutex_lock(&s->lock);
    s->done = true;
    pthread_cond_signal(&s->answered);
    pthread_mutex_unlock(&s->lock);
}

static void ask(session_t *s, uint8_t operation, void *data, size_t each, size_t count) {
    s->done = false;
    s->packet = (tb_packet_t){.data = data, .data_size = (uint32_t)(each * count), .operation = operation};
    if (tb_client_submit(&s->client, &s->packet) != TB_CLIENT_OK) fail("the client is closed", 0);
    pthread_mutex_lock(&s->lock);
    while (!s->done) pthread_cond_wait(&s->answered, &s->lock);
    pthread_mutex_unlock(&s->lock);
    if (s->answers != count) fail("not everything was answered", (unsigned)s->answers);
}

static void open_session(session_t *s, unsigned index) {
    static const uint8_t cluster[16] = {0};
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->answered, NULL);
    s->random = 0x9e3779b97f4a7c15ull * (index + 1);
    // Ids grow in time and never collide; TigerBeetle stores these fastest.
    s->next_id = ((uint64_t)(index + 1)) << 48;
    s->pending = calloc(LARGEST_BATCH, sizeof *s->pending);
    s->posts = calloc(LARGEST_BATCH, sizeof *s->posts);
    TB_INIT_STATUS status =
        tb_client_init(&s->client, cluster, address, (uint32_t)strlen(address), (uintptr_t)s, on_answer);
    if (status != TB_INIT_SUCCESS) fail("no connection", status);
}

static uint64_t draw(session_t *s) {
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return s->random;
}

static void fund(session_t *s) {
    tb_account_t *made = calloc(LARGEST_BATCH, sizeof *made);
    made[0] = (tb_account_t){.id = PLATFORM, .ledger = LEDGER, .code = CODE};
    ask(s, TB_OPERATION_CREATE_ACCOUNTS, made, sizeof *made, 1);
    for (unsigned from = 0; from < accounts; from += LARGEST_BATCH) {
        unsigned count = accounts - from < LARGEST_BATCH ? accounts - from : LARGEST_BATCH;
        for (unsigned i = 0; i < count; i++) {
            made[i] = (tb_account_t){.id = FIRST_ORG + from + i, .ledger = LEDGER, .code = CODE,
                                     .flags = TB_ACCOUNT_DEBITS_MUST_NOT_EXCEED_CREDITS};
            s->pending[i] = (tb_transfer_t){.id = s->next_id++, .debit_account_id = PLATFORM,
                                            .credit_account_id = FIRST_ORG + from + i, .amount = GRANTED,
                                            .ledger = LEDGER, .code = CODE};
        }
        ask(s, TB_OPERATION_CREATE_ACCOUNTS, made, sizeof *made, count);
        ask(s, TB_OPERATION_CREATE_TRANSFERS, s->pending, sizeof *s->pending, count);
    }
    free(made);
}

static void *work(void *argument) {
    session_t *s = argument;
    double end = now() + seconds;
    while (now() < end) {
        for (unsigned i = 0; i < batch; i++) {
            tb_uint128_t org = FIRST_ORG + draw(s) % accounts;
            s->pending[i] = (tb_transfer_t){.id = s->next_id++, .debit_account_id = org, .credit_account_id = PLATFORM,
                                            .amount = HELD, .ledger = LEDGER, .code = CODE,
                                            .flags = TB_TRANSFER_PENDING};
            s->posts[i] = (tb_transfer_t){.amount = SETTLED, .pending_id = s->pending[i].id,
                                          .flags = TB_TRANSFER_POST_PENDING_TRANSFER};
        }
        for (unsigned i = 0; i < batch; i++) s->posts[i].id = s->next_id++;
        ask(s, TB_OPERATION_CREATE_TRANSFERS, s->pending, sizeof *s->pending, batch);
        ask(s, TB_OPERATION_CREATE_TRANSFERS, s->posts, sizeof *s->posts, batch);
        s->pairs += batch;
    }
    return NULL;
}

static void check(session_t *s, uint64_t pairs) {
    tb_uint128_t *ids = calloc(LARGEST_BATCH, sizeof *ids);
    for (unsigned from = 0; from < accounts; from += LARGEST_BATCH) {
        unsigned count = accounts - from < LARGEST_BATCH ? accounts - from : LARGEST_BATCH;
        for (unsigned i = 0; i < count; i++) ids[i] = FIRST_ORG + from + i;
        ask(s, TB_OPERATION_LOOKUP_ACCOUNTS, ids, sizeof *ids, count);
    }
    if (s->posted != (tb_uint128_t)pairs * SETTLED || s->still_pending != 0) fail("its sums do not add up", 0);
    free(ids);
}

int main(int count, char **arguments) {
    if (count != 6) fail("usage: pairs ADDRESS BATCH SESSIONS SECONDS ACCOUNTS", (unsigned)count);
    address = arguments[1];
    batch = (unsigned)atoi(arguments[2]);
    sessions = (unsigned)atoi(arguments[3]);
    seconds = atof(arguments[4]);
    accounts = (unsigned)atoi(arguments[5]);
    if (batch < 1 || batch > LARGEST_BATCH || sessions < 1 || accounts < 1) fail("arguments out of range", batch);

    session_t *all = calloc(sessions, sizeof *all);
    pthread_t *threads = calloc(sessions, sizeof *threads);
    for (unsigned i = 0; i < sessions; i++) open_session(&all[i], i);
    fund(&all[0]);

    double began = now();
    for (unsigned i = 0; i < sessions; i++) pthread_create(&threads[i], NULL, work, &all[i]);
    uint64_t pairs = 0;
    for (unsigned i = 0; i < sessions; i++) {
        pthread_join(threads[i], NULL);
        pairs += all[i].pairs;
    }
    double took = now() - began;
    check(&all[0], pairs);
    printf("%.0f\n", pairs / took);
    return 0;
}
