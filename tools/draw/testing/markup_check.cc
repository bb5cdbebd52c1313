#include "tools/draw/testing/markup_check.h"

#include <cctype>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

class Checker {
 public:
  explicit Checker(const std::string& text) : text_(text) {}

  std::string Run() {
    while (fault_.empty() && at_ < text_.size()) {
      if (text_[at_] == '<') {
        Tag();
      } else {
        Character();
      }
    }
    if (!fault_.empty()) return fault_;
    if (!open_.empty()) return absl::StrCat("<", open_.back(), "> has no end");
    for (const std::string& id : references_) {
      if (!ids_.contains(id)) return absl::StrCat("nothing has the id ", id);
    }
    return "";
  }

 private:
  void Fail(const std::string& what) {
    if (fault_.empty()) fault_ = absl::StrCat("at byte ", at_, ": ", what);
  }

  void Character() {
    if (text_[at_] == '&') {
      const std::string rest = text_.substr(at_, 6);
      bool known = false;
      for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;"}) {
        known |= rest.starts_with(entity);
      }
      if (!known) Fail("a stray &");
    }
    ++at_;
  }

  void Tag() {
    const size_t begin = at_++;
    if (text_.compare(at_, 8, "!DOCTYPE") == 0) {
      at_ = text_.find('>', at_) + 1;
      return;
    }
    const bool closing = text_[at_] == '/';
    if (closing) ++at_;
    const std::string name = Word();
    if (name.empty()) return Fail("a stray <");
    if (closing) {
      if (open_.empty() || open_.back() != name) return Fail(absl::StrCat("</", name, ">"));
      open_.pop_back();
      if (text_[at_++] != '>') Fail("no > behind an end tag");
      return;
    }
    Attributes();
    if (!fault_.empty()) return;
    if (text_[at_] == '/') {
      ++at_;
    } else if (name != "meta" && name != "br") {
      open_.push_back(name);
    }
    if (text_[at_++] != '>') Fail(absl::StrCat("no end of ", text_.substr(begin, 20)));
    if (name == "style") at_ = text_.find("</style>", at_);
  }

  void Attributes() {
    std::set<std::string> seen;
    for (;;) {
      while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
      const std::string name = Word();
      if (name.empty()) return;
      if (!seen.insert(name).second) return Fail(absl::StrCat("two attributes ", name));
      if (text_.compare(at_, 2, "=\"") != 0) return Fail(absl::StrCat(name, " has no value"));
      const size_t end = text_.find('"', at_ + 2);
      if (end == std::string::npos) return Fail("no end of a value");
      const std::string value = text_.substr(at_ + 2, end - at_ - 2);
      if (value.find('<') != std::string::npos) return Fail("a stray < in a value");
      at_ = end + 1;
      if (name == "id" && !ids_.insert(value).second) return Fail(absl::StrCat("two ids ", value));
      if (value.starts_with("url(#")) references_.insert(value.substr(5, value.size() - 6));
      if (name == "href" && value.starts_with("#")) references_.insert(value.substr(1));
    }
  }

  std::string Word() {
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 ||
                                  text_[at_] == '-' || text_[at_] == ':')) {
      ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  const std::string& text_;
  size_t at_ = 0;
  std::vector<std::string> open_;
  std::set<std::string> ids_, references_;
  std::string fault_;
};

}  // namespace

std::string MarkupFault(const std::string& text) { return Checker(text).Run(); }

}  // namespace lockstep
