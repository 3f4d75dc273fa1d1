#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <dynapipe/batch/balance.hpp>
#include <dynapipe/batch/order_sorts.hpp>
#include <dynapipe/batch/partition.hpp>
#include <dynapipe/batch/partition_frontier.hpp>
#include <dynapipe/batch/sample.hpp>
#include <dynapipe/comm/order.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/core/version.hpp>
#include <dynapipe/cost/cluster.hpp>
#include <dynapipe/cost/cost_model.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/plan/lower.hpp>
#include <dynapipe/plan/options.hpp>
#include <dynapipe/plan/pipeline_costs.hpp>
#include <dynapipe/plan/plan.hpp>
#include <dynapipe/plan/sync.hpp>
#include <dynapipe/schedule/adaptive.hpp>
#include <dynapipe/schedule/bound.hpp>
#include <dynapipe/schedule/one_f_one_b.hpp>
#include <dynapipe/schedule/problem.hpp>
#include <dynapipe/schedule/simulate.hpp>

namespace dynapipe {

namespace detail {

/// One replica's pipeline as scheduled.
struct scheduled_replica {
  pipeline_problem problem;
  program lists;
  timeline times;
};

}  // namespace detail

/// Plans global batches: the one call that most users need.
///
/// A batch's samples are ordered by length and cut into micro-batches exactly (`partition`), the micro-batches are
/// spread over the replicas (`balance`), each replica's pipeline is scheduled under its devices' memory, and everything
/// is lowered to instructions. How much of a device one micro-batch may take is not fixed beforehand: limits that leave
/// room for all stages' micro-batches in flight, half as many, and so on down to one are all tried, each with several
/// cuts near the best by the formula, with and without the way between stages, and several injection orders; the
/// shortest simulated iteration wins. For two lengths several orders of the samples are cut.
///
/// A plan's provenance names the epoch of the calibration in use, and where the cost model extrapolates, the option
/// "extrapolated_micro_batches" says for how many.
///
/// Guarantee: a plan holds in the sense of `validate`; none is refused that exists for samples one by one in a row.
/// Equal inputs give equal plans on every machine, provided that the cost model is exact. The model, cluster and cost
/// model must outlive the planner. `operator()` is const and may be called from several threads at once.
template <cost_model CostModel>
class planner {
 public:
  /// @throws error and infeasible as `pipeline_costs` does.
  planner(const model_spec& model, const cluster_spec& cluster, const CostModel& cost, planner_options options = {})
      : costs_{model, cluster, cost, options} {}

  [[nodiscard]] const pipeline_costs<CostModel>& costs() const { return costs_; }

  /// Plans one global batch; `source_rows` says which data row each sample is (by default their positions).
  ///
  /// @throws error where the batch is empty, has no loss token or a sample has bad lengths; infeasible, with numbers
  /// and the knob that would help, where a sample fits no device or the asked schedule does not fit; either with the
  /// cost model's own words where it refuses a sample's shape.
  [[nodiscard]] plan operator()(std::span<const sample> batch, std::vector<std::int64_t> source_rows = {}) const {
    return (*this)(read(batch, std::move(source_rows)));
  }

  /// Plans samples that are read already, and that policies may have cut or left out (`overlong.hpp`). Throws as above.
  [[nodiscard]] plan operator()(batch_samples samples) const {
    const std::vector<sample_id> alone = std::move(samples.alone);
    const std::vector<std::vector<sample_id>> orders = std::move(samples.orders);
    plan result = frame(std::move(samples));
    fill(result, best_draft(result, alone, orders));
    return result;
  }

  /// The same for samples as the data has them, positions in `batch`.
  [[nodiscard]] plan operator()(std::span<const sample> batch, std::vector<std::vector<micro_batch>> replicas,
                                batch_layout layout = batch_layout::padded) const {
    return (*this)(read(batch), std::move(replicas), layout);
  }

  /// The samples of a global batch as the model reads them; `source_rows` as above. Throws as above for bad lengths.
  [[nodiscard]] batch_samples read(std::span<const sample> batch, std::vector<std::int64_t> source_rows = {}) const {
    if (source_rows.empty())
      for (std::size_t i = 0; i < batch.size(); ++i)
        source_rows.push_back(static_cast<std::int64_t>(i));
    DYNAPIPE_ASSERT(source_rows.size() == batch.size());
    batch_samples result;
    result.lengths.reserve(batch.size());
    for (std::size_t i = 0; i < batch.size(); ++i)
      result.lengths.push_back(lengths_read(costs_.model(), batch[i], options().shapes, i));
    result.source_rows = std::move(source_rows);
    return result;
  }

  /// Plans one global batch whose micro-batches are given, those of each replica in injection order: schedules and
  /// lowers them as they are. Samples are positions in `batch`; all of them must be there once.
  ///
  /// @throws as above; infeasible where a micro-batch does not fit a device alone.
  [[nodiscard]] plan operator()(batch_samples samples, std::vector<std::vector<micro_batch>> replicas,
                                batch_layout layout = batch_layout::padded) const {
    DYNAPIPE_ASSERT(static_cast<std::int64_t>(replicas.size()) == options().data);
    plan result = frame(std::move(samples));
    result.layout = layout;
    draft given;
    for (std::size_t r = 0; r < replicas.size(); ++r) {
      for (std::size_t m = 0; m < replicas[r].size(); ++m)
        costs_.require_run(replicas[r][m].work(),
                           "micro-batch " + std::to_string(m) + " of replica " + std::to_string(r));
      given.replicas.push_back(schedule_one(replicas[r], static_cast<std::int64_t>(r)));
    }
    given.micro_batches = std::move(replicas);
    fill(result, given);
    return result;
  }

 private:
  [[nodiscard]] const planner_options& options() const { return costs_.options(); }

  /// Micro-batches by replica, and their schedules.
  struct draft {
    std::vector<std::vector<micro_batch>> micro_batches;
    std::vector<detail::scheduled_replica> replicas;
    nanoseconds iteration{0};  ///< the slowest replica's pipeline, and the synchronisation after it
  };

  /// A plan that knows its samples, and nothing of what to do with them.
  [[nodiscard]] plan frame(batch_samples samples) const {
    if (samples.dropped.size() == samples.lengths.size())
      throw error{samples.lengths.empty() ? "the batch is empty: there is nothing to plan"
                                          : "every sample of the batch was dropped: there is nothing to plan"};
    plan result;
    result.lengths = std::move(samples.lengths);
    result.source_rows = std::move(samples.source_rows);
    result.dropped = std::move(samples.dropped);
    const std::vector<char> dropped = marked(result.lengths.size(), result.dropped);
    bool learns = false;
    for (std::size_t i = 0; i < result.lengths.size(); ++i)
      learns = learns || (dropped[i] == 0 && result.lengths[i].loss > 0);
    if (!learns) throw error{"no sample of the batch has a loss token: there is nothing to learn"};
    result.provenance = {.version = version,
                         .model = costs_.model(),
                         .cluster = costs_.cluster(),
                         .cost_source = costs_.source(),
                         .cost_epoch = options().calibrated ? options().calibrated->epoch : 0,
                         .options = describe(options())};
    result.pipeline = {.devices = options().pipeline,
                       .stages = costs_.stages(),
                       .type = costs_.model().type,
                       .stage_device = costs_.stage_device(),
                       .schedule = std::string{to_string(options().schedule)},
                       .recompute = options().recompute,
                       .tensor_parallel = options().tensor,
                       .context_parallel = 1,
                       .queues = options().queues};
    return result;
  }

  [[nodiscard]] static std::vector<char> marked(std::size_t samples, const std::vector<sample_id>& ids) {
    std::vector<char> marks(samples, 0);
    for (const sample_id id : ids)
      marks[index(id)] = 1;
    return marks;
  }

  /// Samples in an order to be cut.
  struct ordered_samples {
    std::vector<sample_id> ids;
    std::vector<sample_lengths> lengths;
  };

  /// The orders to cut: those given, or by length, and for two lengths other sorts. Samples that must be alone stand in
  /// none.
  [[nodiscard]] std::vector<ordered_samples> orders_of(const plan& p, const std::vector<sample_id>& alone,
                                                       std::vector<std::vector<sample_id>> ids) const {
    const bool given = !ids.empty();
    if (!given) ids.push_back(order_by_length(p.lengths));
    if (!given && costs_.model().encoder_decoder()) {
      ids.push_back(order_by_target(p.lengths));
      ids.push_back(order_by_sum(p.lengths));
      ids.push_back(order_by_hilbert(p.lengths, options().shapes));
    }
    const std::vector<char> dropped = marked(p.lengths.size(), p.dropped);
    const std::vector<char> apart = marked(p.lengths.size(), alone);
    std::vector<ordered_samples> orders;
    for (const std::vector<sample_id>& order : ids) {
      ordered_samples& kept = orders.emplace_back();
      for (const sample_id id : order) {
        if (dropped[index(id)] != 0 || apart[index(id)] != 0) continue;
        kept.ids.push_back(id);
        kept.lengths.push_back(p.lengths[index(id)]);
      }
    }
    return orders;
  }

  void require_fits(const plan& p) const {
    const std::vector<char> dropped = marked(p.lengths.size(), p.dropped);
    std::optional<shape> before;
    for (const sample_id id : order_by_length(p.lengths)) {
      const shape alone = shape_of(std::span{&p.lengths[index(id)], 1});
      if (before == alone || dropped[index(id)] != 0) continue;
      costs_.require_fit(p.lengths[index(id)], alone, index(id), p.source_rows[index(id)]);
      before = alone;
    }
  }

  [[nodiscard]] draft best_draft(const plan& p, const std::vector<sample_id>& alone,
                                 const std::vector<std::vector<sample_id>>& given) const {
    require_fits(p);
    const std::vector<ordered_samples> orders = orders_of(p, alone, given);
    detail::price_cache price{
        [this, room = costs_.make_workspace()](const work_shape& s) mutable { return costs_.price(s, room); }};
    const partition_options cut_options{.devices = options().pipeline,
                                        .replicas = options().data,
                                        .stages_per_device = options().stages_per_device,
                                        .convex_rows = costs_.convex_rows()};

    std::optional<draft> best;
    std::optional<infeasible> refusal;
    std::vector<cut_samples> tried;
    const auto try_cut = [&](cut_samples cut) {
      if (std::find(tried.begin(), tried.end(), cut) != tried.end()) return;
      try {
        draft next = schedule_all(spread(micro_batches_of(p, *cut.order, cut.cuts, alone), price));
        if (!best || next.iteration < best->iteration) best = std::move(next);
      } catch (const infeasible& reason) {
        refusal = reason;
      }
      tried.push_back(std::move(cut));
    };
    for (auto in_flight = static_cast<std::int64_t>(costs_.stages().size()); in_flight > 0; in_flight /= 2)
      for (const bool travels : {false, true}) {
        if (travels && !travel_counts(p, price)) continue;
        const auto time = [&](const shape& s) -> std::optional<nanoseconds> {
          const shape_price& known = price(s);
          if (known.in_flight < in_flight) return std::nullopt;
          if (!travels) return known.time;
          return nanoseconds{saturating_add(known.time.value(), costs_.round_trip(s).value())};
        };
        for (const ordered_samples* order : orders_to_cut(orders, time, cut_options)) {
          auto frontier = partition_frontier(order->lengths, options().shapes, time, cut_options, frontier_limits);
          if (!frontier) break;
          for (partition_result& cut : *frontier)
            try_cut({order, std::move(cut.cuts)});
        }
      }
    if (!best) throw *refusal;
    return std::move(*best);
  }

  /// Limits of t_max that are tried beside those of the search for the best.
  static constexpr std::size_t frontier_limits = 4;

  /// A cut of samples in some order.
  struct cut_samples {
    const ordered_samples* order;
    std::vector<std::size_t> cuts;
    friend bool operator==(const cut_samples&, const cut_samples&) = default;
  };

  /// The order whose best cut has the least objective, and the first; none where samples of several do not fit.
  template <class Time>
  [[nodiscard]] std::vector<const ordered_samples*> orders_to_cut(const std::vector<ordered_samples>& orders,
                                                                  Time& time,
                                                                  const partition_options& cut_options) const {
    if (orders.size() == 1) return {&orders.front()};
    const ordered_samples* best = nullptr;
    wide_int least = 0;
    for (const ordered_samples& order : orders) {
      const std::optional<partition_result> found = partition(order.lengths, options().shapes, time, cut_options);
      if (!found) return {};
      const wide_int objective = found->scaled_objective(cut_options);
      if (best != nullptr && least <= objective) continue;
      best = &order;
      least = objective;
    }
    if (best == &orders.front()) return {best};
    return {best, &orders.front()};
  }

  /// Whether the way between stages is long enough, beside the work on them, to be looked at when samples are cut.
  template <class Price>
  [[nodiscard]] bool travel_counts(const plan& p, Price& price) const {
    return std::any_of(p.lengths.begin(), p.lengths.end(), [&](const sample_lengths& s) {
      const shape alone = shape_of(std::span{&s, 1});
      return costs_.round_trip(alone).value() > price(alone).time.value() / 16;
    });
  }

  [[nodiscard]] shape shape_of(std::span<const sample_lengths> samples) const {
    shape result{.rows = static_cast<std::int64_t>(samples.size())};
    for (const sample_lengths& s : samples) {
      result.input = std::max(result.input, padded_length(s.input, options().shapes));
      if (s.target > 0) result.target = std::max(result.target, padded_length(s.target, options().shapes));
    }
    return result;
  }

  /// Micro-batches of a cut, after those of samples that must be alone.
  [[nodiscard]] std::vector<micro_batch> micro_batches_of(const plan& p, const ordered_samples& order,
                                                          const std::vector<std::size_t>& cuts,
                                                          const std::vector<sample_id>& alone) const {
    std::vector<micro_batch> all;
    const auto add = [&](std::span<const sample_id> ids, std::span<const sample_lengths> lengths) {
      micro_batch& mb = all.emplace_back();
      mb.samples.assign(ids.begin(), ids.end());
      mb.padded = shape_of(lengths);
      for (const sample_lengths& s : lengths)
        mb.loss_tokens += s.loss;
    };
    for (const sample_id& id : alone)
      add({&id, 1}, {&p.lengths[index(id)], 1});
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      const std::size_t count = (i + 1 < cuts.size() ? cuts[i + 1] : order.ids.size()) - cuts[i];
      add(std::span{order.ids}.subspan(cuts[i], count), std::span{order.lengths}.subspan(cuts[i], count));
    }
    return all;
  }

  /// Micro-batches dealt to the replicas; a replica without any gets a dummy.
  template <class Price>
  [[nodiscard]] std::vector<std::vector<micro_batch>> spread(std::vector<micro_batch> all, Price& price) const {
    std::vector<nanoseconds> times;
    for (const micro_batch& mb : all)
      times.push_back(price(mb.padded).time);
    std::vector<std::vector<micro_batch>> replicas;
    for (std::vector<std::size_t>& group : balance(times, static_cast<std::size_t>(options().data))) {
      std::sort(group.begin(), group.end(),
                [&](std::size_t a, std::size_t b) { return times[a] != times[b] ? times[a] > times[b] : a < b; });
      std::vector<micro_batch>& mine = replicas.emplace_back();
      for (const std::size_t i : group)
        mine.push_back(std::move(all[i]));
      if (mine.empty()) {
        const shape smallest = smallest_shape(costs_.model(), options().shapes);
        costs_.require_run(smallest, "a micro-batch of the smallest shape, for a replica without samples,");
        mine.push_back({.samples = {}, .row_ends = {}, .padded = smallest, .dummy = true});
      }
    }
    return replicas;
  }

  /// Schedules every replica, in the injection order of the shortest pipeline: longest micro-batches first, shortest
  /// first, or rising and falling.
  [[nodiscard]] draft schedule_all(std::vector<std::vector<micro_batch>> groups) const {
    draft result;
    for (std::size_t r = 0; r < groups.size(); ++r) {
      std::optional<detail::scheduled_replica> best;
      std::vector<micro_batch> chosen;
      for (const std::vector<micro_batch>& candidate : injection_orders(groups[r])) {
        detail::scheduled_replica next = schedule_one(candidate, static_cast<std::int64_t>(r));
        if (!best || next.times.makespan < best->times.makespan) {
          best = std::move(next);
          chosen = candidate;
        }
      }
      result.replicas.push_back(std::move(*best));
      result.micro_batches.push_back(std::move(chosen));
    }
    const nanoseconds predicted = slowest(result);
    result.iteration = predicted + sync_overhang(costs_, ready(result), predicted);
    return result;
  }

  [[nodiscard]] static std::vector<std::vector<micro_batch>> injection_orders(
      const std::vector<micro_batch>& longest_first) {
    std::vector<std::vector<micro_batch>> orders{longest_first};
    if (longest_first.size() < 2) return orders;
    std::vector<micro_batch>& reversed = orders.emplace_back();
    for (std::size_t i = longest_first.size(); i-- > 0;)
      reversed.push_back(longest_first[i]);
    std::vector<micro_batch> ramp;
    for (std::size_t i = longest_first.size(); i-- > 0;)
      if (i % 2 == 0) ramp.push_back(longest_first[i]);
    for (std::size_t i = 1; i < longest_first.size(); i += 2)
      ramp.push_back(longest_first[i]);
    orders.push_back(std::move(ramp));
    return orders;
  }

  [[nodiscard]] detail::scheduled_replica schedule_one(const std::vector<micro_batch>& micro_batches,
                                                       std::int64_t replica) const {
    std::vector<work_shape> shapes;
    for (const micro_batch& mb : micro_batches)
      shapes.push_back(mb.work());
    detail::scheduled_replica result{costs_.problem(shapes, replica), {}, {}};
    if (serial_time(result.problem) == nanoseconds::max())
      throw error{"the batch would take longer than 2^63 ns: its times cannot be counted"};
    switch (options().schedule) {
      case schedule_kind::adaptive: result.lists = adaptive(result.problem); break;
      case schedule_kind::one_f_one_b:
        result.lists = order_transfers(result.problem, one_f_one_b(result.problem));
        break;
    }
    std::optional<timeline> times = simulate(result.problem, result.lists);
    DYNAPIPE_ASSERT(times.has_value());
    result.times = std::move(*times);
    return result;
  }

  void fill(plan& p, const draft& chosen) const {
    for (std::size_t r = 0; r < chosen.replicas.size(); ++r) {
      const detail::scheduled_replica& from = chosen.replicas[r];
      replica_plan& to = p.replicas.emplace_back();
      to.predicted = from.times.makespan;
      to.devices = lower(from.problem, from.lists, from.times, costs_.fixed());
      for (std::size_t m = 0; m < chosen.micro_batches[r].size(); ++m)
        to.micro_batches.push_back(planned(from.problem, chosen.micro_batches[r][m], m));
      p.lower_bound = std::max(p.lower_bound, lower_bound(from.problem));
    }
    report_extrapolation(p, chosen);
    p.predicted = slowest(chosen);
    p.sync = sync_overhang(costs_, ready(chosen), p.predicted);
    p.iteration = p.predicted + p.sync;
  }

  [[nodiscard]] static nanoseconds slowest(const draft& d) {
    nanoseconds last{0};
    for (const detail::scheduled_replica& replica : d.replicas)
      last = std::max(last, replica.times.makespan);
    return last;
  }

  /// By device, when the gradients of its stages are ready: the ends of their last backwards, over all replicas.
  [[nodiscard]] std::vector<std::vector<nanoseconds>> ready(const draft& d) const {
    std::vector<std::vector<nanoseconds>> result(costs_.devices());
    for (const auto& [problem, lists, times] : d.replicas) {
      const operation_index number{problem};
      for (std::size_t s = 0; s < problem.stages(); ++s) {
        nanoseconds last{0};
        for (std::size_t mb = 0; mb < problem.micro_batches; ++mb)
          last = std::max(last, times.spans[number.backward(mb, s)].end);
        result[problem.device_of(s)].push_back(last);
      }
    }
    return result;
  }

  /// Says in the plan's provenance how many micro-batches have costs beyond what the cost model has seen.
  void report_extrapolation(plan& p, const draft& chosen) const {
    std::size_t count = 0;
    std::size_t all = 0;
    for (const std::vector<micro_batch>& micro_batches : chosen.micro_batches)
      for (const micro_batch& mb : micro_batches) {
        ++all;
        if (costs_.extrapolates(mb.work())) ++count;
      }
    if (count > 0)
      p.provenance.options.emplace_back("extrapolated_micro_batches",
                                        std::to_string(count) + " of " + std::to_string(all));
  }

  [[nodiscard]] planned_micro_batch planned(const pipeline_problem& problem, const micro_batch& mb,
                                            std::size_t m) const {
    planned_micro_batch result{.samples = {},
                               .rows = mb.padded.rows,
                               .input_length = mb.padded.input,
                               .target_length = mb.padded.target,
                               .loss_tokens = mb.loss_tokens,
                               .dummy = mb.dummy,
                               .cost = {},
                               .boundary = {}};
    if (mb.row_ends.empty())
      for (const sample_id id : mb.samples)
        result.samples.push_back({id});
    std::size_t begin = 0;
    for (const std::size_t end : mb.row_ends) {
      result.samples.emplace_back(mb.samples.begin() + static_cast<std::ptrdiff_t>(begin),
                                  mb.samples.begin() + static_cast<std::ptrdiff_t>(end));
      begin = end;
    }
    for (std::size_t s = 0; s < problem.stages(); ++s)
      result.cost.push_back(problem.cost_of(m, s));
    for (std::size_t s = 0; s + 1 < problem.stages(); ++s) {
      const hop_cost& hop = problem.hop(m, s);
      result.boundary.push_back(
          {costs_.tensors_after(s, mb.padded), hop.forward_bytes, hop.forward, hop.backward_bytes, hop.backward});
    }
    return result;
  }

  pipeline_costs<CostModel> costs_;
};

}  // namespace dynapipe
