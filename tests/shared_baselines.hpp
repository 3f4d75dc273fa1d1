#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <dynapipe/batch/order.hpp>
#include <dynapipe/batch/shape_map.hpp>
#include <dynapipe/dynapipe.hpp>
#include <dynapipe/ext/report.hpp>

/// Other ways to build micro-batches on one pipeline, each tuned as a user would: for `shared_baselines.cpp`.

namespace baselines {

using namespace dynapipe;

struct global_batch {
  std::vector<sample> samples;
  std::vector<sample_lengths> lengths;  ///< as the model reads them
};

using micro_batches = std::vector<micro_batch>;
using replica_batches = std::vector<micro_batches>;

/// Plans of one setting with one recomputation, and prices by shape.
template <class Cost>
class bench {
 public:
  bench(const model_spec& model, const cluster_spec& cluster, const Cost& cost, planner_options options)
      : adaptive_{model, cluster, cost, with(options, schedule_kind::adaptive)},
        one_f_one_b_{model, cluster, cost, with(options, schedule_kind::one_f_one_b)},
        room_{adaptive_.costs().make_workspace()} {}

  [[nodiscard]] const planner<Cost>& planner_of(schedule_kind schedule) const {
    return schedule == schedule_kind::adaptive ? adaptive_ : one_f_one_b_;
  }
  [[nodiscard]] const pipeline_costs<Cost>& costs() const { return adaptive_.costs(); }
  [[nodiscard]] const planner_options& options() const { return costs().options(); }

  const shape_price& price(const shape& s) {
    return prices_.find_or(s, [&] { return costs().price(s, room_); });
  }
  /// Time on the slowest device. @throws infeasible or error where it does not fit.
  nanoseconds time(const micro_batch& mb) {
    const shape_price p = mb.work().varlen() ? costs().price(mb.work(), room_) : price(mb.padded);
    if (p.in_flight == 0)
      costs().require_run(mb.work(), fmt::format("a micro-batch of {} x ({} + {}) tokens", mb.padded.rows,
                                                 mb.padded.input, mb.padded.target));
    return p.time;
  }

 private:
  static planner_options with(planner_options options, schedule_kind schedule) {
    options.schedule = schedule;
    return options;
  }

  planner<Cost> adaptive_;
  planner<Cost> one_f_one_b_;
  typename pipeline_costs<Cost>::workspace room_;
  detail::shape_map<shape_price> prices_;
};

/// A way to build micro-batches with one parameter: `build` throws where a sample does not fit it.
template <class Cost>
struct choice {
  std::string parameter;
  std::function<micro_batches(bench<Cost>&, const global_batch&)> build;
};

template <class Cost>
struct method {
  std::string name;
  bool balances = false;  ///< its system balances replicas; otherwise they take micro-batches in turn
  bool padded = true;     ///< may not beat dynapipe's padded micro-batches
  std::vector<choice<Cost>> choices;
};

struct result {
  double ms = 0;    ///< of one iteration
  double sync = 0;  ///< ms of it that wait for gradients to be synchronised
  double padding = 0;
  std::string tuned;
  std::vector<plan> plans;
};

/// What came of a method: a result, or why nothing fits.
struct outcome {
  std::optional<result> best;
  std::string refusal = "no choice fits";
};

inline double milliseconds(nanoseconds time) { return static_cast<double>(time.value()) / 1e6; }

inline result result_of(std::vector<plan> plans, std::string tuned) {
  result r{.tuned = std::move(tuned), .plans = std::move(plans)};
  double real = 0;
  double padded = 0;
  for (const plan& p : r.plans) {
    const plan_summary s = summarize(p);
    r.ms += milliseconds(p.iteration) / static_cast<double>(r.plans.size());
    r.sync += milliseconds(p.sync) / static_cast<double>(r.plans.size());
    real += static_cast<double>(s.real_tokens);
    padded += static_cast<double>(s.padded_tokens);
  }
  r.padding = 100 * real / padded;
  return r;
}

/// With the orders that the command cuts for two lengths.
inline batch_samples with_orders(batch_samples batch) {
  const bool two_lengths =
      std::any_of(batch.lengths.begin(), batch.lengths.end(), [](const sample_lengths& s) { return s.target > 0; });
  if (!two_lengths) return batch;
  for (named_order& order : candidate_orders(batch.lengths, true))
    batch.orders.push_back(std::move(order.ids));
  return batch;
}

/// One pipeline, and all methods on it.
template <class Cost>
class setting {
 public:
  setting(const model_spec& model, const cluster_spec& cluster, const Cost& cost, const planner_options& options,
          const std::vector<global_batch>& batches)
      : batches_{batches} {
    for (const auto& [recompute, name] : recompute_names) {
      planner_options with = options;
      with.recompute = recompute;
      benches_.emplace_back(name, bench<Cost>{model, cluster, cost, with});
    }
  }

  [[nodiscard]] outcome dynapipe_with(schedule_kind schedule) {
    outcome all;
    for (auto& [name, at] : benches_) {
      try {
        std::vector<plan> plans;
        for (const global_batch& batch : batches_)
          plans.push_back(at.planner_of(schedule)(with_orders(at.planner_of(schedule).read(batch.samples))));
        keep(all, result_of(std::move(plans), std::string{name}));
      } catch (const error& reason) {
        all.refusal = reason.what();
      }
    }
    return all;
  }

  /// The best choice of `how`, with its system's dealing and 1F1B, or `alike`.
  [[nodiscard]] outcome best_of(const method<Cost>& how, bool alike) {
    struct entry {
      bench<Cost>* at;
      std::string tuned;
      std::vector<replica_batches> dealt;
      double bound = 0;
    };
    outcome all;
    std::vector<entry> entries;
    for (auto& [name, at] : benches_)
      for (const choice<Cost>& tried : how.choices) {
        try {
          entry next{&at, fmt::format("{}{}{}", tried.parameter, tried.parameter.empty() ? "" : ", ", name), {}};
          for (const global_batch& batch : batches_) {
            next.dealt.push_back(deal(at, tried.build(at, batch), alike || how.balances));
            next.bound += milliseconds(bound_of(at, next.dealt.back())) / static_cast<double>(batches_.size());
          }
          entries.push_back(std::move(next));
        } catch (const error& reason) {
          all.refusal = reason.what();
        }
      }
    std::sort(entries.begin(), entries.end(), [](const entry& a, const entry& b) { return a.bound < b.bound; });
    for (const entry& next : entries) {
      if (all.best && next.bound >= all.best->ms) break;
      try {
        std::vector<plan> plans;
        for (std::size_t b = 0; b < batches_.size(); ++b)
          plans.push_back(alike ? best_order(*next.at, batches_[b], next.dealt[b])
                                : made(*next.at, schedule_kind::one_f_one_b, batches_[b], next.dealt[b]));
        keep(all, result_of(std::move(plans), next.tuned));
      } catch (const error& reason) {
        all.refusal = reason.what();
      }
    }
    return all;
  }

 private:
  static void keep(outcome& all, result next) {
    if (!all.best || next.ms < all.best->ms) all.best = std::move(next);
  }

  static plan made(const bench<Cost>& at, schedule_kind schedule, const global_batch& batch,
                   const replica_batches& dealt) {
    const bool varlen = dealt.front().front().work().varlen();
    return at.planner_of(schedule)(batch.samples, dealt, varlen ? batch_layout::varlen : batch_layout::padded);
  }

  /// Micro-batches by replica, in turn or balanced (longest first); a replica without any gets a dummy.
  static replica_batches deal(bench<Cost>& at, micro_batches all, bool balanced) {
    const auto replicas = static_cast<std::size_t>(at.options().data);
    std::vector<nanoseconds> times;
    for (const micro_batch& mb : all)
      times.push_back(at.time(mb));
    std::vector<std::vector<std::size_t>> groups(replicas);
    if (balanced) {
      groups = balance(times, replicas);
      for (std::vector<std::size_t>& group : groups)
        std::sort(group.begin(), group.end(),
                  [&](std::size_t a, std::size_t b) { return times[a] != times[b] ? times[a] > times[b] : a < b; });
    } else {
      for (std::size_t i = 0; i < all.size(); ++i)
        groups[i % replicas].push_back(i);
    }
    replica_batches result(replicas);
    const bool varlen = all.front().work().varlen();
    for (std::size_t r = 0; r < replicas; ++r) {
      for (const std::size_t i : groups[r])
        result[r].push_back(std::move(all[i]));
      if (!result[r].empty()) continue;
      const shape least = smallest_shape(at.costs().model(), at.options().shapes);
      result[r].push_back({.samples = {}, .row_ends = {}, .padded = least, .dummy = true});
      if (varlen) result[r].back().packed = with_sample({}, least.input, least.target);
    }
    return result;
  }

  /// No schedule of these micro-batches is shorter.
  static nanoseconds bound_of(const bench<Cost>& at, const replica_batches& dealt) {
    nanoseconds bound{0};
    for (std::size_t r = 0; r < dealt.size(); ++r) {
      std::vector<work_shape> shapes;
      for (const micro_batch& mb : dealt[r])
        shapes.push_back(mb.work());
      bound = std::max(bound, lower_bound(at.costs().problem(shapes, static_cast<std::int64_t>(r))));
    }
    return bound;
  }

  /// The adaptive plan with each replica's micro-batches longest first, shortest first, or rising and falling.
  static plan best_order(const bench<Cost>& at, const global_batch& batch, const replica_batches& longest_first) {
    std::array<replica_batches, 3> orders{longest_first, longest_first, longest_first};
    for (std::size_t r = 0; r < longest_first.size(); ++r) {
      const micro_batches& from = longest_first[r];
      std::reverse(orders[1][r].begin(), orders[1][r].end());
      orders[2][r].clear();
      for (std::size_t i = from.size(); i-- > 0;)
        if (i % 2 == 0) orders[2][r].push_back(from[i]);
      for (std::size_t i = 1; i < from.size(); i += 2)
        orders[2][r].push_back(from[i]);
    }
    std::array<plan, 3> plans;
    for (std::size_t o = 0; o < orders.size(); ++o)
      plans[o] = made(at, schedule_kind::adaptive, batch, orders[o]);
    replica_batches best = longest_first;
    for (std::size_t r = 0; r < best.size(); ++r) {
      std::size_t fastest = 0;
      for (std::size_t o = 1; o < orders.size(); ++o)
        if (plans[o].replicas[r].predicted < plans[fastest].replicas[r].predicted) fastest = o;
      best[r] = orders[fastest][r];
    }
    return made(at, schedule_kind::adaptive, batch, best);
  }

  const std::vector<global_batch>& batches_;
  std::vector<std::pair<std::string_view, bench<Cost>>> benches_;
};

}  // namespace baselines
