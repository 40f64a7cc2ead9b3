//go:build ignore

/*
 * The floor: the least that a program must do to take datagrams and write
 * them to a gzip file. It drains its socket with recvmmsg(2), appends each
 * datagram and a line feed to a buffer, and compresses each 64 KiB into one
 * gzip member and one write(2). No parsing, no accounting, no second file,
 * no failure handled.
 *
 * usage: floor udp PORT | unixgram PATH   FILE
 *
 * cc -O2 floor.c -lz (zlib, level 1), or cc -O2 -DISAL floor.c -lisal. With
 * -DDISCARD it sleeps in recvmmsg(2) instead, is woken by each datagram, and
 * throws it away: nothing that keeps it can be back sooner.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#ifdef ISAL
#include <isa-l.h>
#else
#include <zlib.h>
#endif

enum {
	SLOTS = 1024,         /* datagrams a call */
	SLOT = 2048,          /* bytes of a datagram */
	MEMBER = 64 << 10,    /* bytes of text a member */
	DRAIN_US = 2000,      /* between two drains */
	FLUSH_S = 1,          /* no text waits longer */
	RECEIVE = 4 << 20,    /* receive buffer asked for */
};

static char slots[SLOTS][SLOT];
static char text[MEMBER + SLOT + 1];
static size_t length;
static unsigned char packed[2 * MEMBER + 4 * SLOT];
static int out;
static volatile sig_atomic_t stopping;

static void on_signal(int signal)
{
	(void)signal;
	stopping = 1;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

#ifdef ISAL
static size_t compress_text(void)
{
	static struct isal_zstream stream;
	static unsigned char level[ISAL_DEF_LVL1_DEFAULT];

	isal_deflate_stateless_init(&stream);
	stream.next_in = (unsigned char *)text;
	stream.avail_in = length;
	stream.next_out = packed;
	stream.avail_out = sizeof packed;
	stream.gzip_flag = IGZIP_GZIP;
	stream.level = 1;
	stream.level_buf = level;
	stream.level_buf_size = sizeof level;
	stream.end_of_stream = 1;
	if (isal_deflate_stateless(&stream) != COMP_OK)
		fail("isal_deflate_stateless");
	return stream.total_out;
}
#else
static size_t compress_text(void)
{
	static z_stream stream;
	static int ready;

	/* 15 + 16: the largest window, and a gzip header and trailer. */
	if (!ready && deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		fail("deflateInit2");
	ready = 1;
	deflateReset(&stream);
	stream.next_in = (unsigned char *)text;
	stream.avail_in = length;
	stream.next_out = packed;
	stream.avail_out = sizeof packed;
	if (deflate(&stream, Z_FINISH) != Z_STREAM_END)
		fail("deflate");
	return sizeof packed - stream.avail_out;
}
#endif

/* flush writes the text as one member. */
static void flush(void)
{
	size_t n;

	if (length == 0)
		return;
	n = compress_text();
	if (write(out, packed, n) != (ssize_t)n)
		fail("write");
	length = 0;
}

static int open_socket(const char *network, const char *at)
{
	struct sockaddr_in udp = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_un local = {.sun_family = AF_UNIX};
	int bytes = RECEIVE, is_udp = strcmp(network, "udp") == 0, fd, bound;

	fd = socket(is_udp ? AF_INET : AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	if (fd < 0)
		fail("socket");
	if (is_udp) {
		udp.sin_port = htons(atoi(at));
		bound = bind(fd, (struct sockaddr *)&udp, sizeof udp);
	} else {
		strncpy(local.sun_path, at, sizeof local.sun_path - 1);
		bound = bind(fd, (struct sockaddr *)&local, sizeof local);
		chmod(at, 0666);
	}
	if (bound < 0)
		fail("bind");
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) < 0)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
	return fd;
}

int main(int argc, char **argv)
{
	static struct mmsghdr headers[SLOTS];
	static struct iovec pieces[SLOTS];
	struct timespec pause = {0, DRAIN_US * 1000L};
	time_t flushed;
	int fd, i, n;

	if (argc != 4) {
		fprintf(stderr, "usage: floor udp PORT | unixgram PATH   FILE\n");
		return 2;
	}
	signal(SIGTERM, on_signal);
	out = open(argv[3], O_WRONLY | O_CREAT | O_APPEND, 0644);
	if (out < 0)
		fail(argv[3]);
	fd = open_socket(argv[1], argv[2]);
	for (i = 0; i < SLOTS; i++) {
		pieces[i] = (struct iovec){slots[i], SLOT};
		headers[i].msg_hdr.msg_iov = &pieces[i];
		headers[i].msg_hdr.msg_iovlen = 1;
	}
#ifdef DISCARD
	/* The signal may come just before the call: so it wakes up now and then. */
	fcntl(fd, F_SETFL, 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 100000}, sizeof(struct timeval));
	while (!stopping)
		recvmmsg(fd, headers, SLOTS, MSG_WAITFORONE, NULL);
	return 0;
#endif
	flushed = time(NULL);
	for (;;) {
		int last = stopping; /* read before the drain: nothing sent before the signal is left */

		n = recvmmsg(fd, headers, SLOTS, MSG_DONTWAIT, NULL);
		for (i = 0; i < n; i++) {
			memcpy(text + length, slots[i], headers[i].msg_len);
			length += headers[i].msg_len;
			text[length++] = '\n';
			if (length >= MEMBER)
				flush();
		}
		if (time(NULL) - flushed >= FLUSH_S || (last && n <= 0)) {
			flush();
			flushed = time(NULL);
		}
		if (last && n <= 0)
			return 0;
		if (!last && n < SLOTS / 4)
			nanosleep(&pause, NULL);
	}
}
