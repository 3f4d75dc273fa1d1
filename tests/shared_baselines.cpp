/// Micro-batches of others against dynapipe's, on measured costs and real lengths: `shared_baselines DATA_FOLDER`.
/// Prints tables of predicted iteration times, means over a few global batches, and exits 1 where dynapipe is slower
/// than another way to build padded micro-batches, or a plan does not hold.
///
/// Every method is tuned as a user would, by one parameter and the recomputation for all batches of a setting, the
/// fastest that fits. "own" is the method with the dealing and the schedule of its systems: 1F1B, micro-batches dealt
/// in turn (DynaPipe: balanced). "alike" leaves only its micro-batches to compare: they are balanced over the replicas,
/// scheduled adaptively in the best of three orders, as dynapipe's are.

#include "shared_baselines.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <dynapipe/batch/baselines.hpp>
#include <dynapipe/batch/published.hpp>
#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/cost/fitted.hpp>
#include <dynapipe/cost/table.hpp>
#include <dynapipe/dynapipe.hpp>
#include <dynapipe/ext/csv.hpp>
#include <dynapipe/ext/csv_profile.hpp>
#include <dynapipe/ext/fit.hpp>
#include <dynapipe/ext/global_batch.hpp>
#include <dynapipe/plan/validate.hpp>

namespace {

using namespace dynapipe;
using namespace baselines;

constexpr std::int64_t longest_sequence = 4096;
constexpr std::int64_t batch_tokens = 65'536;
constexpr std::size_t batch_count = 3;
constexpr std::uint64_t seed = 0;
constexpr bytes memory_limit{36'000'000'000};

/// The first global batches of a lengths file, sequences cut to the longest that is trained.
std::vector<global_batch> first_batches(const std::string& path, const model_spec& model, const shape_options& shapes) {
  lengths_table table = read_lengths(path);
  for (length_row& row : table.rows) {
    const std::int64_t beside = model.encoder_decoder() ? shapes.extra_decoder_tokens : 0;
    row.target = std::min(row.target, longest_sequence - beside);
    row.input = std::min(row.input, model.encoder_decoder() ? longest_sequence : longest_sequence - row.target);
  }
  const auto cuts = cut_batches(table.rows, shuffled(table.rows.size(), seed), {.tokens = batch_tokens, .samples = {}});
  std::vector<global_batch> result(batch_count);
  for (std::size_t b = 0; b < batch_count; ++b)
    for (const std::int64_t row : cuts[b]) {
      const length_row& lengths = table.rows[static_cast<std::size_t>(row)];
      result[b].samples.push_back({lengths.input, lengths.target});
      result[b].lengths.push_back(lengths_read(model, result[b].samples.back(), shapes, result[b].lengths.size()));
    }
  return result;
}

/// DynaPipe as published: its orders, its cut on its grid of t_max. Its limit of memory leaves room for `share` of the
/// stages' micro-batches in flight.
template <class Cost>
micro_batches published(bench<Cost>& at, const global_batch& batch, std::int64_t share) {
  const planner_options& options = at.options();
  const std::vector<sample_id> order = at.costs().model().encoder_decoder()
                                           ? order_by_tour(batch.lengths, options.shapes)
                                           : order_by_length(batch.lengths);
  std::vector<sample_lengths> ordered;
  for (const sample_id id : order)
    ordered.push_back(batch.lengths[index(id)]);
  const std::int64_t in_flight = std::max<std::int64_t>(1, options.pipeline / share);
  const auto time = [&](const shape& s) -> std::optional<nanoseconds> {
    const shape_price& known = at.price(s);
    if (known.in_flight < in_flight) return std::nullopt;
    return known.time;
  };
  const std::optional<published_cut> found =
      published_partition(ordered, options.shapes, time, {.devices = options.pipeline, .replicas = options.data});
  if (!found) throw error{"the published cut finds nothing on its grid"};
  micro_batches result;
  const std::vector<std::size_t>& cuts = found->cut.cuts;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const std::size_t end = i + 1 < cuts.size() ? cuts[i + 1] : order.size();
    result.push_back(detail::padded_micro_batch(std::span{batch.lengths},
                                                std::span{order}.subspan(cuts[i], end - cuts[i]), options.shapes));
  }
  return result;
}

template <class Cost>
using choices = std::vector<choice<Cost>>;

template <class Cost>
choices<Cost> packings(packing how) {
  choices<Cost> all;
  for (const bool longest_row : {false, true})
    for (const std::int64_t target : {0, 512, 1024})
      for (const std::size_t rows : {1U, 2U, 4U, 8U, 16U}) {
        const std::string name = fmt::format("{} x {}", rows, longest_row ? "longest" : "4096");
        all.push_back({target == 0 ? name : fmt::format("{} + {}", name, target),
                       [=](bench<Cost>& at, const global_batch& batch) {
                         const shape_options& shapes = at.options().shapes;
                         row_room row = padded_row(batch.lengths, shapes);
                         if (row.target == 0 && target > 0) throw error{"one length has no target"};
                         if (!longest_row) row.input = longest_sequence;
                         row.target = std::max(row.target, target);
                         return pack_to_length(std::span{batch.lengths}, row, rows, how, shapes);
                       }});
      }
  return all;
}

template <class Cost>
std::vector<method<Cost>> padded_methods() {
  choices<Cost> longest;
  choices<Cost> fixed;
  for (const std::size_t rows : {1U, 2U, 4U, 8U, 16U, 32U, 64U}) {
    longest.push_back({fmt::format("{} rows", rows), [=](bench<Cost>& at, const global_batch& batch) {
                         return pad_to_longest(std::span{batch.lengths}, rows, at.options().shapes);
                       }});
    fixed.push_back({fmt::format("{} rows", rows), [=](bench<Cost>& at, const global_batch& batch) {
                       return fixed_size(std::span{batch.lengths}, rows, at.options().shapes);
                     }});
  }
  choices<Cost> budgets;
  for (const std::int64_t budget : {2048, 3072, 4096, 6144, 8192, 12'288, 16'384, 32'768})
    for (const std::size_t multiple : {1U, 8U})
      budgets.push_back({fmt::format("{} tokens{}", budget, multiple > 1 ? " by 8" : ""),
                         [=](bench<Cost>& at, const global_batch& batch) {
                           return fill_token_budget(std::span{batch.lengths}, budget, multiple, at.options().shapes);
                         }});
  choices<Cost> grid;
  for (const std::int64_t share : {1, 2, 4, 8, 16})
    grid.push_back({fmt::format("memory / {}", share > 1 ? fmt::format("(pp / {})", share) : "pp"),
                    [=](bench<Cost>& at, const global_batch& batch) { return published(at, batch, share); }});
  return {{.name = "pad to the longest", .choices = longest},
          {.name = "pack, next fit", .choices = packings<Cost>(packing::next_fit)},
          {.name = "pack, first fit decreasing", .choices = packings<Cost>(packing::first_fit_decreasing)},
          {.name = "token budget", .choices = budgets},
          {.name = "fixed size, sorted", .choices = fixed},
          {.name = "DynaPipe as published", .balances = true, .choices = grid}};
}

template <class Cost>
std::vector<method<Cost>> varlen_methods() {
  std::vector<method<Cost>> all;
  for (const auto& [how, name] : {std::pair{packing::next_fit, "varlen to a cap, next fit"},
                                  std::pair{packing::first_fit_decreasing, "varlen to a cap, first fit decreasing"}}) {
    choices<Cost> caps;
    for (const std::int64_t cap : {2048, 4096, 5120, 6144, 8192, 12'288, 16'384, 32'768})
      caps.push_back({fmt::format("{} tokens", cap), [=](bench<Cost>&, const global_batch& batch) {
                        micro_batches result = pack_to_cap(std::span{batch.lengths}, cap, how, {.padding_multiple = 1});
                        for (micro_batch& mb : result)
                          for (const sample_id id : mb.samples) {
                            const sample_lengths& s = batch.lengths[index(id)];
                            mb.packed = with_sample(mb.packed, s.input, s.target);
                          }
                        return result;
                      }});
    all.push_back({.name = name, .padded = false, .choices = std::move(caps)});
  }
  return all;
}

/// Prints tables, judges them, and keeps what ratios there were.
class judge {
 public:
  template <class Cost>
  void table(const std::string& name, const model_spec& model, const cluster_spec& cluster, const Cost& cost,
             std::int64_t tensor, const std::vector<global_batch>& batches, const std::vector<method<Cost>>& methods) {
    for (const std::int64_t pipeline : {4, 8, 16})
      for (const std::int64_t data : {1, 4}) {
        const std::string where = fmt::format("{}, tp {}, pp {}, dp {}", name, tensor, pipeline, data);
        std::cout << fmt::format("\n{}\n{:<38} {:>9} {:>6}  {:<30} {:>9} {:>6}  {:<30} {:>8}\n", where, "", "own ms",
                                 "x", "tuned to", "alike ms", "x", "tuned to", "padding");
        const planner_options options{
            .pipeline = pipeline, .data = data, .tensor = tensor, .memory_limit = memory_limit};
        try {
          setting<Cost> at{model, cluster, cost, options, batches};
          compare(where, name, at, methods);
        } catch (const error& reason) {
          std::cout << "nothing fits: " << reason.what() << '\n';
        }
      }
  }

  void ratios() const {
    std::cout << fmt::format("\n{:<64} {:>9} {:>9} {:>6}\n", "times dynapipe's, geometric means", "own", "alike", "of");
    for (const auto& [name, logs] : logs_)
      std::cout << fmt::format("{:<64} {:>9.3f} {:>9.3f} {:>6}\n", name, mean(logs[0]), mean(logs[1]), logs[1].size());
  }

  [[nodiscard]] int failures() const { return failures_; }

 private:
  static double mean(const std::vector<double>& logs) {
    double sum = 0;
    for (const double one : logs)
      sum += one;
    return std::exp(sum / static_cast<double>(logs.size()));
  }

  template <class Cost>
  void compare(const std::string& where, const std::string& table, setting<Cost>& at,
               const std::vector<method<Cost>>& methods) {
    const outcome ours = at.dynapipe_with(schedule_kind::adaptive);
    if (!ours.best) {
      fail(where + ": dynapipe has no plan: " + ours.refusal);
      return;
    }
    const double base = ours.best->ms;
    if (ours.best->sync > 0)
      std::cout << fmt::format("(dynapipe waits {:.1f} ms for gradients to be synchronised)\n", ours.best->sync);
    row("dynapipe", where, table, at.dynapipe_with(schedule_kind::one_f_one_b), ours, base, false);
    for (const method<Cost>& how : methods)
      row(how.name, where, table, at.best_of(how, false), at.best_of(how, true), base, how.padded);
  }

  void row(const std::string& name, const std::string& where, const std::string& table, const outcome& own,
           const outcome& alike, double base, bool may_not_win) {
    std::string line = fmt::format("{:<38}", name);
    for (std::size_t i = 0; i < 2; ++i) {
      const outcome& o = i == 0 ? own : alike;
      if (!o.best) {
        line += fmt::format(" {:>9} {:>6}  {:<30}", "-", "", "fits nothing");
        continue;
      }
      line += fmt::format(" {:>9.1f} {:>6.3f}  {:<30}", o.best->ms, o.best->ms / base, o.best->tuned);
      logs_[table + ", " + name][i].push_back(std::log(o.best->ms / base));
      if (may_not_win && o.best->ms < base)
        fail(fmt::format("{}: {} ({}) takes {:.3f} ms, dynapipe {:.3f} ms", where, name, o.best->tuned, o.best->ms,
                         base));
      for (const plan& p : o.best->plans)
        for (const violation& v : validate(p))
          fail(where + ": " + name + ": a plan does not hold: " + v.where + ": " + v.what);
    }
    std::cout << line << (alike.best ? fmt::format(" {:>7.1f}%\n", alike.best->padding) : std::string{"\n"});
    for (const outcome* o : {&own, &alike})
      if (!o->best) std::cout << "    " << name << " fits nothing: " << o->refusal << '\n';
    std::cout << std::flush;
  }

  void fail(const std::string& what) {
    std::cout << "MISSED: " << what << '\n';
    ++failures_;
  }

  std::map<std::string, std::array<std::vector<double>, 2>> logs_;
  int failures_ = 0;
};

void compare_model(judge& all, const std::string& folder, const std::string& table, const std::string& preset,
                   std::int64_t tensor) {
  const model_spec model = presets::model(preset).value();
  const cluster_spec cluster = presets::cluster("a100-40g").value();
  const std::vector<global_batch> batches = first_batches(folder + "/lengths/flan_like.csv.gz", model, {});
  const profile measured = load_profile_csv(folder + "/profiles/" + table, tensor, model);
  const fitted_options rest{.rest = analytic_cost{model, cluster, {.tensor_parallel = tensor}}};

  const fitted_costs curves = fit(measured);
  const table_cost costs{measured, fitted_cost{curves, rest}, {.outside = outside_policy::fitted}};
  all.table(preset + ", measured table", model, with_links(cluster, curves), costs, tensor, batches,
            padded_methods<table_cost>());

  const fitted_costs squares = fit(measured, {.degree = 2});
  all.table(preset + ", fit of degree 2", model, with_links(cluster, squares), fitted_cost{squares, rest}, tensor,
            batches, varlen_methods<fitted_cost>());
}

}  // namespace

int main(int count, char** words) {
  try {
    if (count != 2) throw error{"usage: shared_baselines DATA_FOLDER"};
    judge all;
    compare_model(all, words[1], "a100_gpt_6.7b_time.csv", "gpt-6.7b", 2);
    compare_model(all, words[1], "a100_t5_11b_time.csv.gz", "t5-11b", 8);
    all.ratios();
    return all.failures() == 0 ? 0 : 1;
  } catch (const std::exception& problem) {
    std::cerr << problem.what() << '\n';
    return 2;
  }
}
