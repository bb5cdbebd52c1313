#pragma once

#include <csignal>  // sigset_t
#include <functional>
#include <thread>
#include <vector>

#include "core/base/file.h"

namespace lockstep {

// Whether whoever started this process has it ignore a signal, as nohup does with SIGHUP, and a
// script's shell with SIGINT of a background job. The system keeps a signal for a process that
// holds it back (sigprocmask) even then, so whoever waits for signals has to ask.
bool IsIgnored(int signal);

// Watches for signals on a thread of its own, so that what they lead to may do anything that code
// may do. Made before other threads are started: these inherit that the signals are held back.
class SignalWatcher {
 public:
  // Until this object goes, none of `signals` ends the process; `notice` is called with each that
  // comes. Those that whoever started the process has it ignore (nohup) stay ignored.
  SignalWatcher(const std::vector<int>& signals, std::function<void(int)> notice);
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  void Watch();

  sigset_t before_;
  FileDescriptor signals_, end_;  // a signalfd; an eventfd that ends the thread
  const std::function<void(int)> notice_;
  std::thread thread_;
};

}  // namespace lockstep
