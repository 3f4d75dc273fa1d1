/// How close fitted and table costs come to the measured A100 profiles: `shared_profiles FOLDER`. Prints tables and
/// exits 1 where an error is above what is promised.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <iostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <dynapipe/cost/table.hpp>
#include <dynapipe/ext/csv_profile.hpp>
#include <dynapipe/ext/fit.hpp>

namespace {

using namespace dynapipe;

struct error_list {
  std::vector<double> off;

  void add(nanoseconds predicted, nanoseconds measured) {
    off.push_back(std::abs(static_cast<double>(predicted.value()) / static_cast<double>(measured.value()) - 1));
  }
  void add(const error_list& more) { off.insert(off.end(), more.off.begin(), more.off.end()); }
  [[nodiscard]] double mean() const {
    double sum = 0;
    for (const double e : off)
      sum += e;
    return off.empty() ? 0 : 100 * sum / static_cast<double>(off.size());
  }
  [[nodiscard]] double p95() const {
    if (off.empty()) return 0;
    std::vector<double> sorted = off;
    std::sort(sorted.begin(), sorted.end());
    return 100 * sorted[(sorted.size() * 95 + 99) / 100 - 1];
  }
};

std::int64_t longest(const profile_point& point) { return std::max(point.padded.input, point.padded.target); }
std::int64_t tokens_of(const profile_point& point) {
  return point.padded.rows * (point.padded.input + point.padded.target);
}

template <class Keep>
profile only(const profile& all, Keep keep) {
  profile some = all;
  std::erase_if(some.points, [&](const profile_point& point) { return !keep(point); });
  return some;
}

nanoseconds measured(const profile_point& point, bool backward) { return backward ? point.backward : point.forward; }

template <class Model>
nanoseconds predicted(const Model& model, const profile_point& point, bool backward) {
  return backward ? model.backward(point.kind, point.padded, point.recompute)
                  : model.forward(point.kind, point.padded, point.recompute);
}

/// Errors of a model over the points of a kind and pass that `wanted` takes, recomputation none and selective.
template <class Model, class Wanted>
error_list errors_of(const Model& model, const profile& all, layer_kind kind, bool backward, Wanted wanted) {
  error_list errors;
  for (const profile_point& point : all.points)
    if (point.kind == kind && point.recompute != recompute_mode::full && wanted(point))
      errors.add(predicted(model, point, backward), measured(point, backward));
  return errors;
}

class judge {
 public:
  explicit judge(std::string folder) : folder_{std::move(folder)} {}

  /// One row for each degree, kind and pass.
  void file(const std::string& name, const std::vector<std::int64_t>& degrees, const std::vector<layer_kind>& kinds,
            bool held) {
    std::cout << fmt::format("{}\n{:>3} {:<14} {:<9} {:>12} {:>12} {:>14} {:>12} {:>12} {:>14}\n", name, "tp", "layer",
                             "pass", "fit mean%", "fit p95%", ">= 4096 tok %", "table mean%", "every 2nd %",
                             "2k -> 4k..8k %");
    error_list far;
    for (const std::int64_t tp : degrees) {
      const profile all = load_profile_csv(folder_ + "/" + name, tp);
      const fitted_cost fitted{fit(all)};
      const table_cost table{all, fitted};
      const fitted_cost near{fit(only(all, [](const profile_point& p) { return longest(p) <= 2048; }))};
      for (const layer_kind kind : kinds)
        for (const bool backward : {false, true}) {
          const auto everything = [](const profile_point&) { return true; };
          const error_list in = errors_of(fitted, all, kind, backward, everything);
          const error_list big =
              errors_of(fitted, all, kind, backward, [](const profile_point& p) { return tokens_of(p) >= 4096; });
          const error_list here = errors_of(table, all, kind, backward, everything);
          const error_list between = every_second(all, kind, backward);
          const error_list beyond =
              errors_of(near, all, kind, backward, [](const profile_point& p) { return longest(p) > 2048; });
          far.add(beyond);
          std::cout << fmt::format("{:>3} {:<14} {:<9} {:>12.2f} {:>12.2f} {:>14.2f} {:>12.2f} {:>12.2f} {:>14.2f}\n",
                                   tp, to_string(kind), backward ? "backward" : "forward", in.mean(), in.p95(),
                                   big.mean(), here.mean(), between.mean(), beyond.mean());
          const std::string row =
              fmt::format("{} tp {} {} {}", name, tp, to_string(kind), backward ? "backward" : "forward");
          if (held) {
            promise(row + ": in sample, mean", in.mean(), 4);
            promise(row + ": in sample, p95", in.p95(), 12);
            promise(row + ": every second length left out", between.mean(), 4);
          }
          if (kind == layer_kind::cross_decoder) promise(row + ": 4096 tokens and more", big.mean(), 7);
        }
    }
    std::cout << fmt::format("lengths up to 2048 asked for longer ones, all together: {:.2f} %\n\n", far.mean());
    if (held) promise(name + ": longer lengths", far.mean(), 8);
  }

  [[nodiscard]] int failures() const { return failures_; }

 private:
  /// Errors of tables that are made without every second length, at those; both halves.
  static error_list every_second(const profile& all, layer_kind kind, bool backward) {
    std::set<std::int64_t> lengths;
    for (const profile_point& point : all.points)
      lengths.insert(point.padded.input);
    error_list errors;
    for (const bool odd : {false, true}) {
      std::set<std::int64_t> kept;
      bool take = !odd;
      for (const std::int64_t length : lengths) {
        if (take) kept.insert(length);
        take = !take;
      }
      const profile half = only(all, [&](const profile_point& p) { return kept.contains(p.padded.input); });
      const table_cost table{half, fitted_cost{fit(half)}};
      errors.add(errors_of(table, all, kind, backward, [&](const profile_point& p) {
        return !kept.contains(p.padded.input) && p.padded.input > *kept.begin() &&
               table.refusal(p.kind, p.padded, p.recompute).find("not measured") == std::string::npos;
      }));
    }
    return errors;
  }

  void promise(const std::string& what, double value, double most) {
    if (value <= most) return;
    std::cout << fmt::format("MISSED: {}: {:.2f} % is above {} %\n", what, value, most);
    ++failures_;
  }

  std::string folder_;
  int failures_ = 0;
};

}  // namespace

int main(int count, char** words) {
  try {
    if (count != 2) throw error{"usage: shared_profiles FOLDER"};
    judge all{words[1]};
    all.file("a100_gpt_6.7b_time.csv", {1, 2, 4}, {layer_kind::decoder}, true);
    all.file("a100_t5_11b_time.csv.gz", {1, 2, 4, 8}, {layer_kind::encoder, layer_kind::cross_decoder}, false);
    return all.failures() == 0 ? 0 : 1;
  } catch (const std::exception& problem) {
    std::cerr << problem.what() << '\n';
    return 2;
  }
}
