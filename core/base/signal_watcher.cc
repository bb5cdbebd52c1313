#include "core/base/signal_watcher.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <utility>

#include "glog/logging.h"

namespace lockstep {

bool IsIgnored(int signal) {
  struct sigaction action;
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

SignalWatcher::SignalWatcher(const std::vector<int>& signals, std::function<void(int)> notice)
    : notice_(std::move(notice)) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) {
    if (!IsIgnored(signal)) sigaddset(&set, signal);
  }
  CHECK_EQ(pthread_sigmask(SIG_BLOCK, &set, &before_), 0);
  signals_ = FileDescriptor(signalfd(-1, &set, SFD_CLOEXEC));
  end_ = FileDescriptor(eventfd(0, EFD_CLOEXEC));
  CHECK(signals_.is_open() && end_.is_open()) << "no more files may be opened";
  // The thread takes no signals itself: those that others hold back later would reach it.
  sigset_t all, own;
  sigfillset(&all);
  CHECK_EQ(pthread_sigmask(SIG_BLOCK, &all, &own), 0);
  thread_ = std::thread([this] { Watch(); });
  CHECK_EQ(pthread_sigmask(SIG_SETMASK, &own, nullptr), 0);
}

SignalWatcher::~SignalWatcher() {
  const uint64_t one = 1;
  CHECK_EQ(write(end_.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void SignalWatcher::Watch() {
  while (true) {
    pollfd files[] = {{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                      {.fd = end_.get(), .events = POLLIN, .revents = 0}};
    if (poll(files, 2, -1) < 0) {
      CHECK_EQ(errno, EINTR);
      continue;
    }
    if (files[1].revents != 0) return;
    signalfd_siginfo info;
    if (read(signals_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
      notice_(static_cast<int>(info.ssi_signo));
    }
  }
}

}  // namespace lockstep
