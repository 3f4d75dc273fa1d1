#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <dynapipe/batch/constraint.hpp>
#include <dynapipe/batch/pack_problem.hpp>
#include <dynapipe/batch/pack_solve.hpp>

namespace dynapipe {

namespace detail {

/// Checks options of a packing. @throws error naming the option.
template <class Lazy = void>
void require_sound(const pack_options& o) {
  const std::string where = "packing: ";
  constexpr std::int64_t many = std::int64_t{1} << 24;
  require_within(where, "ranks", o.ranks, 1, many);
  require_within(where, "cap", o.cap, 1, pack_limit);
  require_within(where, "fixed", o.fixed, 0, pack_limit);
  require_within(where, "devices", o.devices, 1, 1 << 14);
  require_within(where, "stages_per_device", o.stages_per_device, 1, 1 << 14);
  require_within(where, "count_multiple", o.count_multiple, 1, many);
  require_within(where, "least_count", o.least_count, 1, many);
  require_within(where, "count", o.count, 0, many);
  if (o.count > 0 && o.count < o.least_count)
    throw error{where + "count is " + std::to_string(o.count) + ", below least_count, which is " +
                std::to_string(o.least_count)};
}

/// Says why nothing keeps all that is asked, and what to relax.
template <class Lazy = void>
class pack_refusal {
 public:
  pack_refusal(std::span<const pack_item> items, const pack_sorted& sorted, const pack_options& options)
      : items_{items}, sorted_{sorted}, options_{options} {}

  /// @throws unsatisfiable where an item alone is above the cap, or the exact count is no multiple.
  void of_one() const {
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const pack_item& item = items_[i];
      if (item.size <= options_.cap) continue;
      const std::string excess = " above the cap of " + text(options_.cap) + ": ";
      if (item.samples > 1)
        throw unsatisfiable{"item " + std::to_string(i) + ", a group of " + text(item.samples) + " samples, has size " +
                                text(item.size) + "," + excess + "split the group or raise the cap",
                            batch_constraint::groups};
      throw unsatisfiable{"sample " + std::to_string(i) + " has aligned size " + text(item.size) + "," + excess +
                              "raise the cap, or drop, truncate or split the sample",
                          batch_constraint::cap};
    }
    if (options_.count % options_.count_multiple != 0)
      throw unsatisfiable{text(options_.count) + " micro-batches on each rank are no multiple of " +
                              text(options_.count_multiple) + ": change the count or the multiple",
                          batch_constraint::count_multiple};
  }

  /// @throws unsatisfiable always.
  [[noreturn]] void of_all(const pack_solver<>& solver) const {
    const std::int64_t n = static_cast<std::int64_t>(sorted_.size());
    const std::int64_t every = padded_count(options_, options_.count);
    const std::int64_t needed = saturating_mul(options_.ranks, every);
    if (!options_.dummies && n < needed) too_few(n, every, needed);
    const std::string sizes = "the sizes add up to " + text(total_size()) + " and need " +
                              text(solver.least_bins_needed()) + " micro-batches of " + text(options_.cap) +
                              " at least; ";
    const std::string found = solver.complete() || solver.counts().most < solver.counts().least
                                  ? "no packing keeps the cap in "
                                  : "none was found that keeps the cap in ";
    const pack_filler<> filler{sorted_, options_.cap, sorted_.by_size};
    const std::int64_t enough = static_cast<std::int64_t>(filler.first_fit_bins());
    const auto fail = [&](const std::string& help, batch_constraint relax) {
      throw unsatisfiable{sizes + found + limit(solver) + ": " + help, relax};
    };
    if (options_.count > 0) fail("raise the count, or the cap", batch_constraint::micro_batches);
    if (options_.equal_samples &&
        static_cast<wide_int>(solver.counts().most) * (solver.counts().per_rank ? options_.ranks : 1) >= enough)
      fail("allow ranks' samples to differ by more than one", batch_constraint::equal_samples);
    if (solver.counts().per_rank && !options_.lock_step &&
        n / options_.count_multiple * options_.count_multiple >= enough)
      fail("allow unequal counts, dummies, or a larger cap", batch_constraint::equal_counts);
    if (options_.count_multiple > 1 && n >= enough)
      fail("lower the multiple, allow dummies, or raise the cap", batch_constraint::count_multiple);
    throw unsatisfiable{sizes + found + limit(solver) + ": raise the cap or allow dummies", batch_constraint::cap};
  }

 private:
  template <class Integer>
  static std::string text(Integer value) {
    return std::to_string(value);
  }

  [[nodiscard]] std::int64_t total_size() const {
    return std::accumulate(items_.begin(), items_.end(), std::int64_t{0},
                           [](std::int64_t sum, const pack_item& item) { return sum + item.size; });
  }

  [[nodiscard]] std::string limit(const pack_solver<>& solver) const {
    const pack_counts& c = solver.counts();
    return "at most " + text(std::max<std::int64_t>(c.most, 0)) + " micro-batches" +
           (c.per_rank ? " on each of " + text(options_.ranks) + " ranks" : " of all ranks") +
           (options_.count_multiple > 1 ? ", a multiple of " + text(options_.count_multiple) : "") + ", of " +
           text(sorted_.size()) + " items";
  }

  [[noreturn]] void too_few(std::int64_t n, std::int64_t every, std::int64_t needed) const {
    const bool grouped = sorted_.samples >= needed;
    const std::string have = text(n) + (grouped ? " groups of samples" : " samples") + " cannot fill " + text(every) +
                             " micro-batches on each of " + text(options_.ranks) + " ranks, which takes " +
                             text(needed) + ": ";
    if (grouped) throw unsatisfiable{have + "split groups, or allow dummies", batch_constraint::groups};
    if (n >= options_.ranks && options_.count_multiple > 1 && options_.count == 0)
      throw unsatisfiable{
          have + "lower the multiple of " + text(options_.count_multiple) + ", allow dummies, or use fewer ranks",
          batch_constraint::count_multiple};
    throw unsatisfiable{have + "use fewer ranks or micro-batches, or allow dummies", batch_constraint::micro_batches};
  }

  std::span<const pack_item> items_;
  const pack_sorted& sorted_;
  const pack_options& options_;
};

/// Writes a packing down: each rank's micro-batches slowest first, dummies last.
template <class Lazy = void>
pack_result pack_result_of(const pack_sorted& sorted, const pack_options& options, pack_solver<>::candidate& found) {
  pack_ranks<> ranks{sorted, options, found.layout, found.count};
  ranks.gather();
  ranks.sort_bins();
  pack_result result;
  result.rank_begin.push_back(0);
  result.batch_begin.push_back(0);
  std::vector<std::size_t> next(found.layout.bins.size());
  std::size_t items = 0;
  for (const auto& r : ranks.all()) {
    for (const std::uint32_t b : r.bins) {
      next[b] = items;
      items += ranks.bin(b).items;
      result.batch_begin.push_back(items);
    }
    const std::size_t count = static_cast<std::size_t>(ranks.count(r));
    result.batch_begin.resize(result.rank_begin.back() + count + 1, items);
    result.rank_begin.push_back(result.batch_begin.size() - 1);
    const std::int64_t time = r.work + options.fixed * static_cast<std::int64_t>(count);
    result.longest = std::max(result.longest, time);
    result.total += time;
  }
  result.items.resize(items);
  for (std::size_t p = 0; p < items; ++p)
    result.items[next[found.layout.bin_of[p]]++] = sorted.ids[p];
  for (std::size_t m = 0; m < result.micro_batches(); ++m)
    std::sort(result.items.begin() + static_cast<std::ptrdiff_t>(result.batch_begin[m]),
              result.items.begin() + static_cast<std::ptrdiff_t>(result.batch_begin[m + 1]));
  result.scaled_objective = ranks.objective();
  return result;
}

}  // namespace detail

/// Packs items into micro-batches, and these over data-parallel ranks, in one problem.
///
/// Problem: with t(m) = fixed + sum of the work of m's items, minimise the largest over ranks r of
///
///     sum of t(m) over r's micro-batches + (devices - 1) / stages_per_device * the largest of them,
///
/// the length of a pipeline that its slowest micro-batch fills and drains; in lock-step, the sum over m of the largest
/// t of the m-th micro-batches of all ranks, plus the same term for the slowest of all. No micro-batch has a size above
/// `cap`, none is empty (but for dummies), and all that the options ask for holds.
///
/// Method:
/// 1. Bins that the sizes force (Martello and Toth's L2) and the number of items leave a range of counts; the first
///    count tried is the one whose lower bound is least: it weighs the fixed time of one more micro-batch against the
///    shorter slowest one.
/// 2. Fill: longest first into the micro-batch of least work that has room (`detail::pack_filler`); where that does not
///    fit, by least size, then first-fit decreasing. With equal samples the items are dealt to the ranks first.
/// 3. Deal: micro-batches by work in rounds of R, the slowest of a round to the rank of least work. Counts are equal by
///    construction and the m-th micro-batches alike.
/// 4. Refine by exchanges of items and of whole micro-batches (`detail::pack_refiner`). With a pipeline, also from a
///    second start that puts long items together on few ranks (`detail::pack_together`).
/// 5. Up to 12 items, all packings are searched where the gap is open (`detail::pack_search`); up to 48 where none was
///    found, so that a refusal of small inputs is a proof unless its text says "none was found".
///
/// Items of size 0 are items like others: they fit everywhere, so that none ever needs a micro-batch of its own; one
/// may get it where the objective, or the counts asked for, take as many micro-batches. Returns positions in the input.
/// Guarantee: the cap and all that is asked for hold; `scaled_bound` is a lower bound. Deterministic, whatever the
/// order of the input, but that ids break ties between equal items.
/// O(n log n + R (n / R + R)) for each count tried, O(n) memory. Tried are the count of least bound, the two above it,
/// that which first-fit decreasing fills, and two neighbours of the one that fits: six, twice that where counts may
/// differ. Only where none of these fits are all counts tried: n / R of them at worst, n with dummies. To find the
/// count of least bound takes O(min(counts, 4096)).
///
/// @throws error where an item or an option is out of range; `unsatisfiable` where nothing keeps all that is asked.
///
/// Sources: longest first, Graham (SIAM J. Appl. Math. 17, 1969); first-fit decreasing, Johnson (1973). What others
/// fix one after another (a number of bins from the cap, then their number made a multiple, then their balance) is one
/// problem here.
template <class Lazy = void>
[[nodiscard]] pack_result pack(std::span<const pack_item> items, const pack_options& options) {
  DYNAPIPE_ASSERT(items.size() < 0xffffffff);
  detail::require_sound(options);
  const detail::pack_sorted sorted = detail::sort_items(items, options);
  const detail::pack_refusal refusal{items, sorted, options};
  refusal.of_one();
  detail::pack_solver<> solver{sorted, options};
  std::optional<detail::pack_solver<>::candidate> found = solver.solve();
  if (!found) refusal.of_all(solver);
  pack_result result = detail::pack_result_of(sorted, options, *found);
  result.scaled_bound = solver.bound();
  return result;
}

}  // namespace dynapipe
