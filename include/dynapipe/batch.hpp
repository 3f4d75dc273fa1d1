#pragma once

#include <dynapipe/batch/balance.hpp>
#include <dynapipe/batch/constraint.hpp>
#include <dynapipe/batch/limit_search.hpp>
#include <dynapipe/batch/line_kernel.hpp>
#include <dynapipe/batch/order_sorts.hpp>
#include <dynapipe/batch/partition.hpp>
#include <dynapipe/batch/partition_frontier.hpp>
#include <dynapipe/batch/row_times.hpp>
#include <dynapipe/batch/sample.hpp>
#include <dynapipe/batch/shape_map.hpp>
#include <dynapipe/batch/split_counts.hpp>
#include <dynapipe/batch/suffix_sums.hpp>
#include <dynapipe/batch/window_kernel.hpp>
