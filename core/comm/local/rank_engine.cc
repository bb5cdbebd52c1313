#include "core/comm/local/rank_engine.h"

#include <algorithm>  // std::find
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/program.h"
#include "glog/logging.h"

namespace lockstep {

void RankEngine::Stop() {
  {
    std::lock_guard lock(worker_mutex_);
    stop_ = true;
  }
  worker_wakes_.notify_one();
  if (worker_.joinable()) worker_.join();
}

void RankEngine::Add(Background* background) {
  std::lock_guard lock(backgrounds_mutex_);
  backgrounds_.push_back(background);
}

void RankEngine::Remove(Background* background) {
  std::lock_guard lock(backgrounds_mutex_);
  const auto found = std::find(backgrounds_.begin(), backgrounds_.end(), background);
  CHECK(found != backgrounds_.end());
  backgrounds_.erase(found);
}

void RankEngine::AddJob(std::function<void()> job) {
  {
    std::lock_guard lock(worker_mutex_);
    jobs_.push_back(std::move(job));
  }
  WakeWorker();
}

void RankEngine::Add(Need need) {
  if (need == Need::kNone) return;
  (need == Need::kNeedy ? needy_ : patient_).fetch_add(1);
  if (started_.load()) return;
  std::unique_lock lock(worker_mutex_);
  StartWorker(lock);
}

void RankEngine::Remove(Need need) {
  if (need != Need::kNone) (need == Need::kNeedy ? needy_ : patient_).fetch_sub(1);
}

void RankEngine::WakeWorker() {
  {
    std::unique_lock lock(worker_mutex_);
    if (awake_ || stop_) return;
    awake_ = true;
    StartWorker(lock);
  }
  worker_wakes_.notify_one();
}

void RankEngine::StartWorker(std::unique_lock<std::mutex>& lock) {
  if (started_) return;
  started_ = true;
  try {
    worker_ = std::thread([this] { RunWorker(); });
  } catch (const std::exception&) {
    // Where destructors come by as well, nothing may be thrown. The failure ends all waits.
    if (!failed_) throw;
    lock.unlock();
    failed_(StatusOfException());
    lock.lock();
  }
}

void RankEngine::RunWorker() {
  std::unique_lock lock(worker_mutex_);
  for (;;) {
    worker_wakes_.wait(lock, [this] { return awake_ || stop_; });
    if (stop_) return;
    awake_ = false;
    std::vector<std::function<void()>> jobs;
    jobs.swap(jobs_);
    lock.unlock();
    try {
      Work(jobs);
    } catch (const std::exception&) {
      if (!failed_) throw;
      failed_(StatusOfException());
    }
    jobs.clear();
    lock.lock();
  }
}

void RankEngine::Work(std::vector<std::function<void()>>& jobs) {
  for (const std::function<void()>& job : jobs) job();
  std::lock_guard backgrounds_lock(backgrounds_mutex_);
  for (Background* background : backgrounds_) background->Advance();
}

}  // namespace lockstep
