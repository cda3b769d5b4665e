/* The process that holds a pod's namespaces open: reaps what it inherits, ends when told to. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { (void)signal; _exit(0); }

static void reap(int signal) {
  (void)signal;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}

int main(void) {
  signal(SIGTERM, end);
  signal(SIGINT, end);
  signal(SIGCHLD, reap);
  for (;;) pause();
}
